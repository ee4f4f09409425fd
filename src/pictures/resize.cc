// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "pictures/formats.h"
#include "regard/core/error.h"
#include "regard/pictures/picture.h"

namespace regard::pictures {
namespace {

// Fixed point, as Pillow has it: 22 bits behind the point leave room for 8 in
// front of it and a sum.
constexpr int kBits = 22;

// What a value takes from the line that it is made of.
struct Taps {
  std::int64_t first = 0;
  std::vector<std::int32_t> weights;
};

// `count` lines from `begin` on, of the `whole` that a picture gets.
struct Section {
  std::int64_t whole = 0;
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

// For each line that a picture of `from` gets, its taps.
std::vector<Taps> taps_of(std::int64_t from, const Section& to) {
  const double scale =
      static_cast<double>(from) / static_cast<double>(to.whole);
  const double support = std::max(scale, 1.0);
  std::vector<Taps> all;
  for (std::int64_t i = to.begin; i < to.begin + to.count; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<std::int64_t>(
        0, static_cast<std::int64_t>(center - support + 0.5));
    const auto end =
        std::min(from, static_cast<std::int64_t>(center + support + 0.5));
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t x = first; x < end; ++x) {
      const double distance =
          std::abs((static_cast<double>(x) - center + 0.5) * (1.0 / support));
      weights.push_back(distance < 1 ? 1 - distance : 0);
      sum += weights.back();
    }
    Taps taps{first, {}};
    for (const double weight : weights) {
      taps.weights.push_back(static_cast<std::int32_t>(
          0.5 + (sum == 0 ? weight : weight / sum) * (1 << kBits)));
    }
    all.push_back(std::move(taps));
  }
  return all;
}

// One value of three channels: `step` bytes lie between neighbours.
void combine(const std::uint8_t* from, std::int64_t step, const Taps& taps,
             std::uint8_t* to) {
  for (int c = 0; c < 3; ++c) {
    std::int32_t sum = 1 << (kBits - 1);
    const std::uint8_t* at = from + taps.first * step + c;
    for (const std::int32_t weight : taps.weights) {
      sum += *at * weight;
      at += step;
    }
    to[c] = static_cast<std::uint8_t>(std::clamp(sum >> kBits, 0, 255));
  }
}

// The rows and columns of the resized picture, and no others.
Picture resized(const Picture& picture, const Section& columns,
                const Section& rows) {
  const std::vector<Taps> across = taps_of(picture.width, columns);
  std::vector<Taps> down = taps_of(picture.height, rows);
  const std::int64_t top = down.front().first;
  const std::int64_t bottom =
      down.back().first + std::ssize(down.back().weights);
  // 1. The columns, of the rows that the second step needs.
  Picture wide(columns.count, bottom - top);
  for (std::int64_t y = 0; y < wide.height; ++y) {
    for (std::int64_t x = 0; x < wide.width; ++x) {
      combine(picture.at(top + y, 0), 3, across[static_cast<std::size_t>(x)],
              wide.at(y, x));
    }
  }
  // 2. The rows.
  Picture out(columns.count, rows.count);
  for (std::int64_t y = 0; y < out.height; ++y) {
    Taps& taps = down[static_cast<std::size_t>(y)];
    taps.first -= top;
    for (std::int64_t x = 0; x < out.width; ++x) {
      combine(wide.at(0, x), 3 * out.width, taps, out.at(y, x));
    }
  }
  return out;
}

}  // namespace

Picture resize(const Picture& picture, std::int64_t width,
               std::int64_t height) {
  constexpr const char* kWhere = "resize";
  check_picture(picture, kWhere);
  // Between the steps it is as wide as it becomes and as high as it was.
  require(width > 0 && height > 0 && height <= kMostPixels / width &&
              picture.height <= kMostPixels / width,
          kWhere, "the new size must have pixels, at most ", kMostPixels,
          ", and the new width with the old height no more; a picture of ",
          picture.width, " x ", picture.height, " was to become ", width, " x ",
          height);
  if (width == picture.width && height == picture.height) return picture;
  return resized(picture, {width, 0, width}, {height, 0, height});
}

Picture resize_and_crop(const Picture& picture, std::int64_t side) {
  constexpr const char* kWhere = "resize_and_crop";
  check_picture(picture, kWhere);
  require(side > 0 && side <= kMostPixels / side, kWhere,
          "a square must have pixels, at most ", kMostPixels,
          "; its side was to become ", side);
  std::int64_t width = side;
  std::int64_t height = side;
  if (picture.width < picture.height) {
    height = side * picture.height / picture.width;
  } else {
    width = side * picture.width / picture.height;
  }
  // Python rounds halves to even.
  const auto middle = [side](std::int64_t size) -> Section {
    return {size,
            static_cast<std::int64_t>(
                std::nearbyint(static_cast<double>(size - side) / 2)),
            side};
  };
  return resized(picture, middle(width), middle(height));
}

}  // namespace regard::pictures
