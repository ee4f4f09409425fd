// SPDX-License-Identifier: Apache-2.0
// The formats, each by a library that the build may lack: then a file no_*.cc
// stands in, whose *_available() is false.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "regard/pictures/picture.h"

namespace regard::pictures {

using Bytes = std::span<const std::byte>;

// Each throws ParseError that starts with `name`.
bool jpeg_available();
Picture decode_jpeg(Bytes bytes, const std::string& name);
bool png_available();
Picture decode_png(Bytes bytes, const std::string& name);
std::string write_png(const Picture& picture);
bool webp_available();
Picture decode_webp(Bytes bytes, const std::string& name);

// Throws InvalidArgument for a picture without pixels, or whose rgb has not the
// values of all of them.
void check_picture(const Picture& picture, const char* where);

// An empty picture of a size that a file claims. Throws ParseError.
Picture sized_picture(std::int64_t width, std::int64_t height,
                      const std::string& name);

// The orientation that EXIF data tell (a TIFF structure, with "Exif\0\0" before
// it or without), 1 to 8; 1 where they tell none or are broken.
int exif_orientation(Bytes exif);
Picture upright(Picture picture, int orientation);

// [pixels, 4] with alpha, laid on white.
void lay_on_white(const std::uint8_t* rgba, std::int64_t pixels,
                  std::uint8_t* rgb);

// a / 255, rounded, for a in 0 .. 255 * 255.
constexpr int divided_by_255(int a) {
  a += 128;
  return ((a >> 8) + a) >> 8;
}

}  // namespace regard::pictures
