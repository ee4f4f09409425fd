// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "regard/core/error.h"
#include "regard/pictures/picture.h"

namespace regard::pictures {
namespace {

// Fixed point, as Pillow has it: 22 bits behind the point leave room for 8 in
// front of it and a sum.
constexpr int kBits = 22;

// What a line of `to` values takes from one of `from`: taps for each value.
struct Taps {
  std::int64_t first = 0;
  std::vector<std::int32_t> weights;
};

std::vector<Taps> taps_of(std::int64_t from, std::int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double support = std::max(scale, 1.0);
  std::vector<Taps> all;
  for (std::int64_t i = 0; i < to; ++i) {
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

}  // namespace

Picture resize(const Picture& picture, std::int64_t width,
               std::int64_t height) {
  require(picture.width > 0 && picture.height > 0 && width > 0 && height > 0 &&
              height <= kMostPixels / width,
          "resize", "a picture must have pixels, at most ", kMostPixels,
          "; it is ", picture.width, " x ", picture.height, " and becomes ",
          width, " x ", height);
  Picture wide = picture;
  if (width != picture.width) {
    const std::vector<Taps> taps = taps_of(picture.width, width);
    wide = Picture(width, picture.height);
    for (std::int64_t y = 0; y < picture.height; ++y) {
      for (std::int64_t x = 0; x < width; ++x) {
        combine(picture.at(y, 0), 3, taps[static_cast<std::size_t>(x)],
                wide.at(y, x));
      }
    }
  }
  if (height == picture.height) return wide;
  const std::vector<Taps> taps = taps_of(picture.height, height);
  Picture out(width, height);
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      combine(wide.at(0, x), 3 * width, taps[static_cast<std::size_t>(y)],
              out.at(y, x));
    }
  }
  return out;
}

Picture resize_and_crop(const Picture& picture, std::int64_t side) {
  require(picture.width > 0 && picture.height > 0 && side > 0,
          "resize_and_crop", "a picture must have pixels; it is ",
          picture.width, " x ", picture.height, " and becomes ", side);
  std::int64_t width = side;
  std::int64_t height = side;
  if (picture.width < picture.height) {
    height = side * picture.height / picture.width;
  } else {
    width = side * picture.width / picture.height;
  }
  const Picture whole = resize(picture, width, height);
  // Python rounds halves to even.
  const auto margin = [side](std::int64_t size) {
    return static_cast<std::int64_t>(
        std::nearbyint(static_cast<double>(size - side) / 2));
  };
  const std::int64_t left = margin(width);
  const std::int64_t top = margin(height);
  Picture out(side, side);
  for (std::int64_t y = 0; y < side; ++y) {
    std::copy_n(whole.at(top + y, left), 3 * side, out.at(y, 0));
  }
  return out;
}

}  // namespace regard::pictures
