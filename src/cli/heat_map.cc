// SPDX-License-Identifier: Apache-2.0
#include "cli/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "cli/text.h"

namespace regard::cli {
namespace {

constexpr int kCell = 2;        // a key's width, so that cells are square
constexpr int kGap = 2;         // between two heads
constexpr int kMostLabel = 14;  // cells of a query's label
constexpr int kMostHeader = 5;  // lines of a key's label, written downwards
constexpr std::int64_t kMostRows = 64;

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
      return std::min(
          static_cast<std::size_t>(part * static_cast<float>(steps)),
          steps - 1);
    };
    if (ink_ == Ink::kAscii) {
      line.append(kCell, kPunctuation[step(kPunctuation.size())]);
      return;
    }
    if (ink_ == Ink::kBlocks) {
      for (int i = 0; i < kCell; ++i) line += kShades[step(kShades.size())];
      return;
    }
    std::string escape;
    if (ink_ == Ink::kTrueColor) {
      const Color color = color_at(part);
      escape = fmt::format("\x1b[48;2;{};{};{}m", color.red, color.green,
                           color.blue);
    } else {
      escape = fmt::format("\x1b[48;5;{}m", kPalette[step(kPalette.size())]);
    }
    if (escape != current_) line += escape;
    current_ = escape;
    line.append(kCell, ' ');
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

HeatMaps::HeatMaps(const Sizes& sizes, Labels labels, const Screen& screen)
    : sizes_(sizes), labels_(std::move(labels)), screen_(screen) {
  lay_out();
  cells_.resize(
      static_cast<std::size_t>(sizes.heads * layout_.rows * layout_.columns));
}

void HeatMaps::lay_out() {
  // Numbers are as wide as the last one.
  auto digits = std::to_string(std::max<std::int64_t>(sizes_.q_len - 1, 0));
  layout_.label = static_cast<int>(digits.size());
  for (const std::string& label : labels_.queries) {
    layout_.label = std::max(layout_.label, cells_of(label));
  }
  layout_.label = std::min(layout_.label, kMostLabel);
  const int room = std::max(screen_.columns - layout_.label - 1, kCell);
  layout_.block =
      std::max<std::int64_t>({1, blocks(sizes_.kv_len, room / kCell),
                              blocks(sizes_.q_len, kMostRows)});
  layout_.rows = blocks(sizes_.q_len, layout_.block);
  layout_.columns = blocks(sizes_.kv_len, layout_.block);
  constexpr int kTitle = 8;  // "head 123"
  layout_.width = std::max(static_cast<int>(layout_.columns) * kCell, kTitle);
  layout_.across =
      std::max<std::int64_t>(1, (room + kGap) / (layout_.width + kGap));
}

float HeatMaps::largest() const {
  float result = 0;
  // std::max keeps its first argument when the second is NaN.
  for (const float cell : cells_) result = std::max(result, cell);
  return result;
}

// The heads [from, to) side by side.
std::string HeatMaps::band(std::int64_t from, std::int64_t to) const {
  const std::string gap = blanks(kGap);
  const std::string margin = blanks(layout_.label + 1);
  std::string line = margin;
  for (std::int64_t head = from; head < to; ++head) {
    line += fitted(fmt::format("head {}", head), layout_.width) + gap;
  }
  std::string text = without_trailing_blanks(line);
  for (const std::string& part :
       header_lines(block_labels(labels_.keys, layout_.columns, layout_.block),
                    layout_.width)) {
    line = margin;
    for (std::int64_t head = from; head < to; ++head) line += part + gap;
    text += without_trailing_blanks(line);
  }
  const auto labels =
      block_labels(labels_.queries, layout_.rows, layout_.block);
  Brush brush(screen_, largest());
  for (std::int64_t row = 0; row < layout_.rows; ++row) {
    line = fitted(labels[static_cast<std::size_t>(row)], layout_.label) + " ";
    for (std::int64_t head = from; head < to; ++head) {
      const std::int64_t first = (head * layout_.rows + row) * layout_.columns;
      for (std::int64_t i = first; i < first + layout_.columns; ++i) {
        brush.paint(cells_[static_cast<std::size_t>(i)], line);
      }
      brush.lift(line);
      line += blanks(layout_.width - kCell * layout_.columns) + gap;
    }
    text += without_trailing_blanks(line);
  }
  return text + "\n";
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
  if (layout_.block > 1) {
    line += fmt::format("; a cell is the largest of {0} x {0} weights",
                        layout_.block);
  }
  return line + "\n";
}

std::string HeatMaps::draw() const {
  std::string text;
  for (std::int64_t head = 0; head < sizes_.heads; head += layout_.across) {
    text += band(head, std::min(sizes_.heads, head + layout_.across));
  }
  return text + legend();
}

}  // namespace regard::cli
