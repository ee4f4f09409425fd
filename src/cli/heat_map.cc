// SPDX-License-Identifier: Apache-2.0
#include "cli/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "cli/text.h"
#include "regard/core/error.h"

namespace regard::cli {
namespace {

constexpr int kCell = 2;         // a key's width, so that cells are square
constexpr int kGap = 2;          // between two heads
constexpr int kMostLabel = 14;   // cells of a query's label
constexpr int kMostHeader = 10;  // lines of a key's label, written downwards
constexpr std::int64_t kMostRows = 64;
constexpr std::int64_t kTick = 10;  // columns between the numbers of small maps

struct Color {
  int red, green, blue;
};

// Viridis at five places: even steps for the eye, also for the colour-blind.
constexpr std::array<Color, 5> kRamp = {{{68, 1, 84},
                                         {59, 82, 139},
                                         {33, 145, 140},
                                         {94, 201, 98},
                                         {253, 231, 37}}};

Color color_at(float part) {
  const float place = part * static_cast<float>(kRamp.size() - 1);
  const auto low = std::min(static_cast<std::size_t>(place), kRamp.size() - 2);
  const float rest = place - static_cast<float>(low);
  const auto mix = [rest](int a, int b) {
    return static_cast<int>(
        std::lround(static_cast<float>(a) + rest * static_cast<float>(b - a)));
  };
  const Color& a = kRamp[low];
  const Color& b = kRamp[low + 1];
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

// Much the same in the palette of 256 that every colour terminal has: each step
// brighter than the one before, from purple over blue and green to yellow.
constexpr std::array<int, 12> kPalette = {53, 54, 55,  25,  31,  37,
                                          42, 77, 113, 149, 191, 226};

std::size_t step_of(float part, std::size_t steps) {
  return std::min(static_cast<std::size_t>(part * static_cast<float>(steps)),
                  steps - 1);
}

// Writes cells of one strength after the other.
class Brush {
 public:
  Brush(const Screen& screen, float largest)
      : ink_(screen.ink), largest_(largest) {}

  void paint(float weight, std::string& line) {
    if (std::isnan(weight)) {
      lift(line);
      line += "??";
    } else if (!(weight > 0) || largest_ <= 0) {
      lift(line);
      line += "  ";
    } else {
      paint_part(std::min(weight / largest_, 1.0f), line);
    }
  }

  // Two weights, one above the other, in one cell: by a half block, whose
  // letters have the colour of one and whose ground that of the other.
  void paint_halves(float above, float below, std::string& line) {
    const std::string upper = color_of(above);
    const std::string lower = color_of(below);
    if (std::isnan(above) || std::isnan(below)) {
      lift(line);
      line += '?';
    } else if (upper.empty() && lower.empty()) {
      lift(line);
      line += ' ';
    } else if (lower.empty()) {
      set("\x1b[0;38;" + upper + "m", line);
      line += "\u2580";
    } else if (upper.empty()) {
      set("\x1b[0;38;" + lower + "m", line);
      line += "\u2584";
    } else {
      set("\x1b[38;" + upper + ";48;" + lower + "m", line);
      line += "\u2580";
    }
  }

  // Back to the terminal's own colours.
  void lift(std::string& line) {
    if (!current_.empty()) line += "\x1b[0m";
    current_.clear();
  }

 private:
  void paint_part(float part, std::string& line) {
    constexpr std::string_view kPunctuation = ".:-=+*#%@";
    constexpr std::array<const char*, 5> kShades = {
        "\u00b7", "\u2591", "\u2592", "\u2593", "\u2588"};
    const auto step = [part](std::size_t steps) {
      return step_of(part, steps);
    };
    if (ink_ == Ink::kAscii) {
      line.append(kCell, kPunctuation[step(kPunctuation.size())]);
      return;
    }
    if (ink_ == Ink::kBlocks) {
      for (int i = 0; i < kCell; ++i) line += kShades[step(kShades.size())];
      return;
    }
    set("\x1b[48;" + color_of(part * largest_) + "m", line);
    line.append(kCell, ' ');
  }

  void set(const std::string& escape, std::string& line) {
    if (escape != current_) line += escape;
    current_ = escape;
  }

  // As an escape sequence names it; none for a weight that stays blank.
  std::string color_of(float weight) const {
    if (!(weight > 0) || largest_ <= 0) return "";
    const float part = std::min(weight / largest_, 1.0f);
    if (ink_ == Ink::kTrueColor) {
      const Color color = color_at(part);
      return fmt::format("2;{};{};{}", color.red, color.green, color.blue);
    }
    return fmt::format("5;{}", kPalette[step_of(part, kPalette.size())]);
  }

  Ink ink_;
  float largest_;
  std::string current_;  // the escape in force
};

std::int64_t blocks(std::int64_t count, std::int64_t block) {
  return (count + block - 1) / block;
}

// The names of blocks: of what they hold, or the number of their first.
std::vector<std::string> block_labels(const std::vector<std::string>& labels,
                                      std::int64_t count, std::int64_t block) {
  if (block == 1 && !labels.empty()) return labels;
  std::vector<std::string> result;
  for (std::int64_t i = 0; i < count; ++i) {
    result.push_back(std::to_string(i * block));
  }
  return result;
}

std::string blanks(std::int64_t count) {
  return std::string(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)),
                     ' ');
}

std::string without_trailing_blanks(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

// The keys' labels, written downwards above their columns.
std::vector<std::string> header_lines(std::span<const std::string> labels,
                                      int width) {
  std::vector<std::vector<Glyph>> glyphs;
  std::size_t height = 0;
  for (const std::string& label : labels) {
    glyphs.push_back(glyphs_of(label));
    if (glyphs.back().size() > kMostHeader) glyphs.back().resize(kMostHeader);
    height = std::max(height, glyphs.back().size());
  }
  std::vector<std::string> lines(height);
  for (std::size_t i = 0; i < height; ++i) {
    for (const std::vector<Glyph>& label : glyphs) {
      const std::size_t above = height - label.size();
      const Glyph glyph = i < above ? Glyph{" ", 1} : label[i - above];
      lines[i] += glyph.text + blanks(kCell - glyph.cells);
    }
    lines[i] += blanks(width - kCell * std::ssize(labels));
  }
  return lines;
}

}  // namespace

HeatMaps::HeatMaps(const Sizes& sizes, Labels labels, const Screen& screen,
                   HeatMapChoice choice)
    : sizes_(sizes),
      labels_(std::move(labels)),
      screen_(screen),
      choice_(std::move(choice)) {
  for (const std::int64_t head : choice_.heads) {
    require(head >= 0 && head < sizes.heads, "--head", "there are heads 0 .. ",
            sizes.heads - 1, "; got ", head);
  }
  if (choice_.heads.empty()) {
    choice_.heads.resize(static_cast<std::size_t>(sizes.heads));
    std::iota(choice_.heads.begin(), choice_.heads.end(), 0);
  }
  lay_out();
  cells_.resize(choice_.heads.size() *
                static_cast<std::size_t>(layout_.rows * layout_.columns));
  if (choice_.top > 0) {
    strong_.resize(choice_.heads.size() *
                   static_cast<std::size_t>(sizes.q_len));
  }
}

void HeatMaps::lay_out() {
  // Numbers are as wide as the last one.
  auto digits = std::to_string(std::max<std::int64_t>(sizes_.q_len - 1, 0));
  layout_.label = static_cast<int>(digits.size());
  for (const std::string& label : labels_.queries) {
    layout_.label = std::max(layout_.label, cells_of(label));
  }
  layout_.label = std::min(layout_.label, kMostLabel);
  int room = std::max(screen_.columns - layout_.label - 1, kCell);
  const auto block_for = [this, &room](int cell, std::int64_t most_rows) {
    return std::max<std::int64_t>({1, blocks(sizes_.kv_len, room / cell),
                                   blocks(sizes_.q_len, most_rows)});
  };
  layout_.block = block_for(kCell, kMostRows);
  if (layout_.block > 1 && screen_.has_color() && screen_.utf8) {
    layout_.halves = true;
    layout_.label = static_cast<int>(digits.size());
    room = std::max(screen_.columns - layout_.label - 1, kCell);
    layout_.block = block_for(1, 2 * kMostRows);
  }
  layout_.rows = blocks(sizes_.q_len, layout_.block);
  layout_.columns = blocks(sizes_.kv_len, layout_.block);
  constexpr int kTitle = 8;  // "head 123"
  layout_.width = std::max(
      static_cast<int>(layout_.columns) * (layout_.halves ? 1 : kCell), kTitle);
  layout_.across =
      std::max<std::int64_t>(1, (room + kGap) / (layout_.width + kGap));
}

void HeatMaps::note_strong(std::size_t map, std::int64_t query,
                           std::int64_t key, float weight) {
  std::vector<Strong>& list =
      strong_[map * static_cast<std::size_t>(sizes_.q_len) +
              static_cast<std::size_t>(query)];
  // Of equals, the key that came first stays first.
  const auto at = std::find_if(
      list.begin(), list.end(),
      [weight](const Strong& strong) { return strong.weight < weight; });
  list.insert(at, {weight, key});
  if (std::ssize(list) > choice_.top) list.pop_back();
}

float HeatMaps::largest() const {
  float result = 0;
  // std::max keeps its first argument when the second is NaN.
  for (const float cell : cells_) result = std::max(result, cell);
  return result;
}

const float* HeatMaps::row_of(std::int64_t map, std::int64_t row) const {
  return cells_.data() + (map * layout_.rows + row) * layout_.columns;
}

// The heads' names, and above their columns those of the keys.
std::string HeatMaps::band_header(std::int64_t from, std::int64_t to) const {
  const std::string gap = blanks(kGap);
  const std::string margin = blanks(layout_.label + 1);
  std::string line = margin;
  for (std::int64_t map = from; map < to; ++map) {
    const std::int64_t head = choice_.heads[static_cast<std::size_t>(map)];
    line += fitted(fmt::format("head {}", head), layout_.width) + gap;
  }
  std::string text = choice_.titled ? without_trailing_blanks(line) : "";
  std::vector<std::string> parts;
  if (layout_.halves) {
    std::string ticks;
    for (std::int64_t i = 0; i < layout_.columns; i += kTick) {
      const std::int64_t room = std::min(kTick, layout_.columns - i);
      const std::string number = std::to_string(i * layout_.block);
      // A number that would be cut says something else.
      const bool fits = std::ssize(number) <= room;
      ticks += fitted(fits ? number : "", static_cast<int>(room));
    }
    parts.push_back(fitted(ticks, layout_.width));
  } else {
    parts =
        header_lines(block_labels(labels_.keys, layout_.columns, layout_.block),
                     layout_.width);
  }
  for (const std::string& part : parts) {
    line = margin;
    for (std::int64_t map = from; map < to; ++map) line += part + gap;
    text += without_trailing_blanks(line);
  }
  return text;
}

// The heads [from, to) side by side.
std::string HeatMaps::band(std::int64_t from, std::int64_t to) const {
  const std::string gap = blanks(kGap);
  std::string text = band_header(from, to);
  const auto labels =
      layout_.halves
          ? block_labels({}, layout_.rows, layout_.block)
          : block_labels(labels_.queries, layout_.rows, layout_.block);
  Brush brush(screen_, largest());
  const std::int64_t step = layout_.halves ? 2 : 1;
  for (std::int64_t row = 0; row < layout_.rows; row += step) {
    std::string line =
        fitted(labels[static_cast<std::size_t>(row)], layout_.label) + " ";
    for (std::int64_t map = from; map < to; ++map) {
      const float* const above = row_of(map, row);
      const bool last = row + 1 == layout_.rows;
      const float* const below = last ? nullptr : row_of(map, row + 1);
      for (std::int64_t i = 0; i < layout_.columns; ++i) {
        if (layout_.halves) {
          brush.paint_halves(above[i], last ? 0.0f : below[i], line);
        } else {
          brush.paint(above[i], line);
        }
      }
      brush.lift(line);
      const std::int64_t cell = layout_.halves ? 1 : kCell;
      line += blanks(layout_.width - cell * layout_.columns) + gap;
    }
    text += without_trailing_blanks(line);
  }
  return text + "\n";
}

// A line for each query: its strongest keys and their weights.
std::string HeatMaps::strongest() const {
  const auto queries = block_labels(labels_.queries, sizes_.q_len, 1);
  const auto keys = block_labels(labels_.keys, sizes_.kv_len, 1);
  int width = 1;
  for (const std::string& label : queries) {
    width = std::min(std::max(width, cells_of(label)), kMostLabel);
  }
  std::string text;
  for (std::size_t map = 0; map < choice_.heads.size(); ++map) {
    text += fmt::format("\nhead {}: the strongest keys of each query\n",
                        choice_.heads[map]);
    for (std::size_t q = 0; q < queries.size(); ++q) {
      std::string line = fitted(queries[q], width);
      for (const Strong& strong : strong_[map * queries.size() + q]) {
        const std::string& key = keys[static_cast<std::size_t>(strong.key)];
        line += fmt::format("  {} {:.3f}", fitted(key, cells_of(key)),
                            strong.weight);
      }
      text += without_trailing_blanks(line);
    }
  }
  return text;
}

std::string HeatMaps::legend() const {
  constexpr int kSteps = 10;
  Brush brush(screen_, 1.0f);
  std::string line = "0 ";
  for (int i = 0; i < kSteps; ++i) {
    brush.paint((static_cast<float>(i) + 0.5f) / kSteps, line);
  }
  brush.lift(line);
  line += fmt::format(" {:.3g}", largest());
  if (layout_.halves) line += "; a line is two cells high";
  if (layout_.block > 1) {
    line += fmt::format("; a cell is the largest of {0} x {0} weights",
                        layout_.block);
  }
  return line + "\n";
}

std::string HeatMaps::draw() const {
  std::string text;
  const std::int64_t maps = std::ssize(choice_.heads);
  for (std::int64_t map = 0; map < maps; map += layout_.across) {
    text += band(map, std::min(maps, map + layout_.across));
  }
  text += legend();
  return choice_.top > 0 ? text + strongest() : text;
}

}  // namespace regard::cli
