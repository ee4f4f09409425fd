// SPDX-License-Identifier: Apache-2.0
#include "regard/pictures/picture.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "io/read_file.h"
#include "pictures/formats.h"
#include "regard/core/error.h"

namespace regard::pictures {
namespace {

constexpr const char* kWhere = "read_picture";

struct Format {
  const char* name;
  bool (*available)();
  Picture (*decode)(Bytes bytes, const std::string& name);
  bool (*is)(std::string_view start);
};

constexpr Format kFormats[] = {
    {"JPEG", jpeg_available, decode_jpeg,
     [](std::string_view s) { return s.starts_with("\xFF\xD8\xFF"); }},
    {"PNG", png_available, decode_png,
     [](std::string_view s) { return s.starts_with("\x89PNG\r\n\x1A\n"); }},
    {"WebP", webp_available, decode_webp,
     [](std::string_view s) {
       return s.starts_with("RIFF") && s.substr(0, 12).ends_with("WEBP");
     }},
};

}  // namespace

std::string known_formats() {
  std::string known;
  for (const Format& format : kFormats) {
    if (!format.available()) continue;
    known += (known.empty() ? "" : ", ") + std::string(format.name);
  }
  return known.empty() ? "none" : known;
}

Picture decode_picture(Bytes bytes, const std::string& name) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()),
                             bytes.size());
  for (const Format& format : kFormats) {
    if (!format.is(all)) continue;
    if (!format.available()) {
      throw_parse_error(kWhere, "'", name, "' is a ", format.name,
                        " file, and this build does not read those; it reads ",
                        known_formats());
    }
    return format.decode(bytes, name);
  }
  throw_parse_error(kWhere, "'", name,
                    "' must be a picture that is read here (", known_formats(),
                    "); it begins like none of them");
}

Picture read_picture(const std::filesystem::path& path) {
  // The name may come from a table: a pipe or a device might never end.
  const std::string bytes = io::read_regular(path, kWhere);
  return decode_picture(std::as_bytes(std::span(bytes.data(), bytes.size())),
                        path.string());
}

std::string encode_png(const Picture& picture) {
  check_picture(picture, "encode_png");
  return write_png(picture);
}

void check_picture(const Picture& picture, const char* where) {
  const std::int64_t width = picture.width, height = picture.height;
  require(width > 0 && height > 0, where, "a picture must have pixels; it is ",
          width, " x ", height);
  // Divided, because the product may be too large for any number.
  const std::int64_t values = std::ssize(picture.rgb);
  require(values % 3 == 0 && values / 3 % width == 0 &&
              values / 3 / width == height,
          where, "rgb must have 3 values for each of ", width, " x ", height,
          " pixels; it has ", values);
}

Picture sized_picture(std::int64_t width, std::int64_t height,
                      const std::string& name) {
  if (width < 1 || height < 1 || height > kMostPixels / width) {
    throw_parse_error(kWhere, "'", name,
                      "': a picture must have pixels, and at most ",
                      kMostPixels, " of them; it says ", width, " x ", height);
  }
  return {width, height};
}

void lay_on_white(const std::uint8_t* rgba, std::int64_t pixels,
                  std::uint8_t* rgb) {
  for (std::int64_t i = 0; i < pixels; ++i) {
    const int alpha = rgba[4 * i + 3];
    for (int c = 0; c < 3; ++c) {
      rgb[3 * i + c] = static_cast<std::uint8_t>(
          divided_by_255(rgba[4 * i + c] * alpha + 255 * (255 - alpha)));
    }
  }
}

Picture upright(Picture picture, int orientation) {
  if (orientation <= 1 || orientation > 8) return picture;
  const std::int64_t w = picture.width;
  const std::int64_t h = picture.height;
  // 5 to 8 change rows for columns; then the mirrors.
  const bool swaps = orientation >= 5;
  const bool flip_x = orientation == 2 || orientation == 3 ||
                      orientation == 7 || orientation == 8;
  const bool flip_y = orientation == 3 || orientation == 4 ||
                      orientation == 6 || orientation == 7;
  Picture out(swaps ? h : w, swaps ? w : h);
  for (std::int64_t y = 0; y < out.height; ++y) {
    for (std::int64_t x = 0; x < out.width; ++x) {
      std::int64_t from_x = swaps ? y : x;
      std::int64_t from_y = swaps ? x : y;
      if (flip_x) from_x = w - 1 - from_x;
      if (flip_y) from_y = h - 1 - from_y;
      std::copy_n(picture.at(from_y, from_x), 3, out.at(y, x));
    }
  }
  return out;
}

int exif_orientation(Bytes exif) {
  constexpr std::string_view kStart("Exif\0\0", 6);
  const bool has_start = exif.size() >= kStart.size() &&
                         std::memcmp(exif.data(), kStart.data(), 6) == 0;
  const Bytes tiff = exif.subspan(has_start ? kStart.size() : 0);
  const auto byte = [&](std::size_t i) {
    return i < tiff.size() ? std::to_integer<std::uint32_t>(tiff[i]) : 0;
  };
  const bool little = byte(0) == 'I' && byte(1) == 'I';
  if (!little && !(byte(0) == 'M' && byte(1) == 'M')) return 1;
  const auto number = [&](std::size_t i, int bytes) {
    std::uint32_t value = 0;
    for (int b = 0; b < bytes; ++b) {
      const int at = little ? bytes - 1 - b : b;
      value = value << 8 | byte(i + static_cast<std::size_t>(at));
    }
    return value;
  };
  const std::size_t table = number(4, 4);
  if (table + 2 > tiff.size()) return 1;
  const std::uint32_t entries = number(table, 2);
  for (std::uint32_t i = 0; i < entries; ++i) {
    const std::size_t entry = table + 2 + std::size_t{12} * i;
    if (entry + 12 > tiff.size()) return 1;
    constexpr std::uint32_t kOrientation = 0x0112;
    constexpr std::uint32_t kShort = 3, kLong = 4;
    if (number(entry, 2) != kOrientation) continue;
    const std::uint32_t type = number(entry + 2, 2);
    if (type != kShort && type != kLong) return 1;
    const std::uint32_t value = number(entry + 8, type == kShort ? 2 : 4);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace regard::pictures
