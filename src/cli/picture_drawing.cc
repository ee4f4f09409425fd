// SPDX-License-Identifier: Apache-2.0
#include "cli/picture_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "cli/text.h"

namespace regard::cli {
namespace {

constexpr std::string_view kReset = "\x1b[0m";

// The escape for a colour of the text (38) or what is behind it (48).
std::string ink(int ground, const std::uint8_t* rgb, Ink kind) {
  if (kind == Ink::kTrueColor) {
    return fmt::format("\x1b[{};2;{};{};{}m", ground, rgb[0], rgb[1], rgb[2]);
  }
  // The cube of 6 x 6 x 6 colours.
  const auto step = [](std::uint8_t value) { return (value * 5 + 127) / 255; };
  return fmt::format("\x1b[{};5;{}m", ground,
                     16 + 36 * step(rgb[0]) + 6 * step(rgb[1]) + step(rgb[2]));
}

int luminance(const std::uint8_t* rgb) {
  return (299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2]) / 1000;
}

}  // namespace

std::vector<std::string> draw_picture(const pictures::Picture& picture,
                                      const Screen& screen) {
  static constexpr std::array kAscii = {" ", ".", ":", "-", "=",
                                        "+", "*", "#", "%", "@"};
  static constexpr std::array kBlocks = {" ", "\xE2\x96\x91", "\xE2\x96\x92",
                                         "\xE2\x96\x93", "\xE2\x96\x88"};
  std::vector<std::string> lines;
  for (std::int64_t y = 0; y < picture.height; y += 2) {
    const std::int64_t below = std::min(y + 1, picture.height - 1);
    std::string line;
    for (std::int64_t x = 0; x < picture.width; ++x) {
      const std::uint8_t* const up = picture.at(y, x);
      const std::uint8_t* const down = picture.at(below, x);
      if (screen.has_color()) {
        line += ink(38, up, screen.ink) + ink(48, down, screen.ink) +
                "\xE2\x96\x80";
        continue;
      }
      // Light paper: what is dark is drawn.
      const auto dark =
          static_cast<std::size_t>(255 - (luminance(up) + luminance(down)) / 2);
      line += screen.ink == Ink::kBlocks
                  ? kBlocks[dark * (kBlocks.size() - 1) / 255]
                  : kAscii[dark * (kAscii.size() - 1) / 255];
    }
    if (screen.has_color()) line += kReset;
    lines.push_back(std::move(line));
  }
  return lines;
}

pictures::Picture lit(const pictures::Picture& picture,
                      const std::vector<float>& weights) {
  const auto grid = static_cast<std::int64_t>(
      std::lround(std::sqrt(static_cast<double>(weights.size()))));
  const float most =
      std::max(1e-9f, *std::max_element(weights.begin(), weights.end()));
  pictures::Picture out = picture;
  for (std::int64_t y = 0; y < out.height; ++y) {
    for (std::int64_t x = 0; x < out.width; ++x) {
      const std::int64_t place =
          y * grid / out.height * grid + x * grid / out.width;
      constexpr float kDarkest = 0.12f;
      const float light =
          kDarkest +
          (1 - kDarkest) * weights[static_cast<std::size_t>(place)] / most;
      for (int c = 0; c < 3; ++c) {
        out.at(y, x)[c] = static_cast<std::uint8_t>(
            light * static_cast<float>(out.at(y, x)[c]) + 0.5f);
      }
    }
  }
  return out;
}

std::string side_by_side(const std::vector<TitledDrawing>& drawings, int width,
                         const Screen& screen) {
  const auto across =
      static_cast<std::size_t>(std::max(1, screen.columns / (width + 2)));
  std::string out;
  for (std::size_t first = 0; first < drawings.size(); first += across) {
    const std::size_t end = std::min(first + across, drawings.size());
    for (std::size_t i = first; i < end; ++i) {
      out += fitted(drawings[i].title, width) + "  ";
    }
    out += "\n";
    for (std::size_t row = 0; row < drawings[first].lines.size(); ++row) {
      for (std::size_t i = first; i < end; ++i) {
        out += drawings[i].lines[row] + "  ";
      }
      out += "\n";
    }
  }
  return out;
}

}  // namespace regard::cli
