// SPDX-License-Identifier: Apache-2.0
#include "tasks/sample_shapes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "tasks/samples.h"

namespace regard::tasks {
namespace {

struct Colour {
  const char* name;
  std::array<std::uint8_t, 3> rgb;
};
constexpr std::array kColours = {
    Colour{"red", {220, 40, 40}}, Colour{"blue", {40, 80, 220}},
    Colour{"green", {30, 150, 60}}, Colour{"yellow", {240, 200, 30}},
    Colour{"purple", {140, 50, 170}}};
constexpr std::array kKinds = {"circle", "square", "triangle"};
constexpr std::array kNumbers = {"a", "two", "three"};
constexpr std::int64_t kCell = kShapesSide / kShapesGrid;

// Is a point, measured from the middle in half widths, inside of the shape?
bool is_inside(int kind, double x, double y) {
  if (kind == 0) return x * x + y * y <= 1;
  if (kind == 1) return std::abs(x) <= 0.9 && std::abs(y) <= 0.9;
  return y <= 0.85 && std::abs(x) <= (y + 1) / 1.85;
}

void draw(pictures::Picture& picture, const ShapeGroup& group,
          std::int64_t cell, Random& random) {
  const auto middle = [&](std::int64_t place) {
    return static_cast<double>(place * kCell) + kCell / 2.0 +
           static_cast<double>(random.uniform(-1.2f, 1.2f));
  };
  const double center_y = middle(cell / kShapesGrid);
  const double center_x = middle(cell % kShapesGrid);
  const auto half = static_cast<double>(random.uniform(8.0f, 10.5f));
  const auto& rgb = kColours[static_cast<std::size_t>(group.colour)].rgb;
  const std::int64_t top = cell / kShapesGrid * kCell;
  const std::int64_t left = cell % kShapesGrid * kCell;
  for (std::int64_t y = top; y < top + kCell; ++y) {
    for (std::int64_t x = left; x < left + kCell; ++x) {
      constexpr int kSamples = 4;  // each way, so that edges are smooth
      int inside = 0;
      for (int s = 0; s < kSamples * kSamples; ++s) {
        const double at_x =
            static_cast<double>(x) + (s % kSamples + 0.5) / kSamples - center_x;
        const double at_y =
            static_cast<double>(y) + (s / kSamples + 0.5) / kSamples - center_y;
        inside += is_inside(group.kind, at_x / half, at_y / half) ? 1 : 0;
      }
      for (std::size_t c = 0; c < 3; ++c) {
        constexpr int kAll = kSamples * kSamples;
        std::uint8_t& value = picture.at(y, x)[c];
        value = static_cast<std::uint8_t>(
            (rgb[c] * inside + value * (kAll - inside)) / kAll);
      }
    }
  }
}

// Some of `width` cells of a row, from `first` on, in order.
std::vector<std::int64_t> some_cells(std::int64_t first, std::int64_t width,
                                     std::int64_t count, Random& random) {
  std::vector<std::int64_t> cells(static_cast<std::size_t>(width));
  std::iota(cells.begin(), cells.end(), first);
  while (std::ssize(cells) > count) {
    cells.erase(cells.begin() + random.below(std::ssize(cells)));
  }
  return cells;
}

constexpr const char* kReadme =
    R"(# Shapes: a sample for `regard train caption`

Made up by the rules of `regard sample caption`: pictures of one to six coloured
shapes, one group of them or two, the first above the second or left of it. Free
to use for anything.

    regard train caption --pictures pictures --captions train.tsv \
        --valid valid.tsv --side 48 --patch 12 --dim 64 --ffn 96 \
        --layers 2 --decoder-layers 1 --dropout 0 --lr 0.003 \
        --batch-tokens 1024 --updates 1500 --out model
    regard caption --model model --score test.tsv --pictures pictures
    regard caption --model model pictures/0001.png --show
)";

}  // namespace

std::string ShapeGroup::text() const {
  std::string out = kNumbers[cells.size() - 1];
  out.append(" ").append(kColours[static_cast<std::size_t>(colour)].name);
  out.append(" ").append(kKinds[static_cast<std::size_t>(kind)]);
  return cells.size() > 1 ? out + "s" : out;
}

ShapesPicture draw_shapes(Random& random) {
  ShapesPicture out;
  // Two groups in one row are left and right, others above and below.
  enum class Form { kOneGroup, kAbove, kLeft };
  const std::int64_t draw_form = random.below(5);
  const Form form = draw_form == 0   ? Form::kOneGroup
                    : draw_form <= 2 ? Form::kAbove
                                     : Form::kLeft;
  constexpr std::int64_t kHalf = kShapesGrid / 2;
  const std::int64_t row = random.below(kShapesGrid);
  const std::int64_t upper = random.below(kShapesGrid - 1);
  const std::int64_t lower = upper + 1 + random.below(kShapesGrid - 1 - upper);
  for (int g = 0; g < (form == Form::kOneGroup ? 1 : 2); ++g) {
    ShapeGroup group;
    group.colour = static_cast<int>(random.below(std::ssize(kColours)));
    group.kind = static_cast<int>(random.below(std::ssize(kKinds)));
    // Two groups that look alike would be one.
    if (g == 1 && group.colour == out.groups[0].colour &&
        group.kind == out.groups[0].kind) {
      group.colour = (group.colour + 1) % static_cast<int>(kColours.size());
    }
    const bool halves = form == Form::kLeft;
    const std::int64_t count =
        1 + random.below(halves ? kHalf : std::ssize(kNumbers));
    const std::int64_t line = form != Form::kAbove ? row
                              : g == 0             ? upper
                                                   : lower;
    group.cells = some_cells(line * kShapesGrid + (halves ? g * kHalf : 0),
                             halves ? kHalf : kShapesGrid, count, random);
    out.groups.push_back(std::move(group));
  }
  out.caption = out.groups[0].text();
  if (form != Form::kOneGroup) {
    out.caption +=
        (form == Form::kAbove ? " above " : " left of ") + out.groups[1].text();
  }
  out.picture = pictures::Picture(kShapesSide, kShapesSide);
  std::fill(out.picture.rgb.begin(), out.picture.rgb.end(), std::uint8_t{250});
  for (const ShapeGroup& group : out.groups) {
    for (const std::int64_t cell : group.cells) {
      draw(out.picture, group, cell, random);
    }
  }
  return out;
}

std::vector<SampleFile> sample_shapes(std::uint64_t seed) {
  Random random(seed);
  std::vector<SampleFile> files;
  int number = 0;
  const auto table = [&](const char* name, int count) {
    std::string text = "picture\tcaption\n";
    for (; count > 0; --count) {
      const ShapesPicture next = draw_shapes(random);
      std::string file = std::to_string(++number);
      file = std::string(4 - file.size(), '0') + file + ".png";
      text += file + "\t" + next.caption + "\n";
      files.push_back({"pictures/" + file, pictures::encode_png(next.picture)});
    }
    files.push_back({name, std::move(text)});
  };
  table("train.tsv", 3000);
  table("valid.tsv", 200);
  table("test.tsv", 200);
  files.push_back({"README.md", kReadme});
  return files;
}

}  // namespace regard::tasks
