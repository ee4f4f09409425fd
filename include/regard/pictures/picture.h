// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace regard::pictures {

// Red, green and blue of each pixel, row by row: [height, width, 3].
struct Picture {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::vector<std::uint8_t> rgb;

  Picture() = default;
  Picture(std::int64_t width_, std::int64_t height_)
      : width(width_),
        height(height_),
        rgb(static_cast<std::size_t>(3 * width_ * height_)) {}

  std::uint8_t* at(std::int64_t y, std::int64_t x) {
    return rgb.data() + 3 * (y * width + x);
  }
  const std::uint8_t* at(std::int64_t y, std::int64_t x) const {
    return rgb.data() + 3 * (y * width + x);
  }
};

// Larger pictures are refused before memory is taken for them.
inline constexpr std::int64_t kMostPixels = std::int64_t{1} << 27;

// JPEG (grey and CMYK too), PNG (any depth and palette) and WebP (no
// animations), turned upright by their EXIF orientation; what is transparent is
// laid on white. The bytes tell which; `name` says whose they are.
//
// Throws ParseError for what is none of these, is of a format that the library
// was built without, damaged, cut off or larger than kMostPixels; IoError for a
// file that cannot be read, or is not a regular one: a pipe may never end.
Picture decode_picture(std::span<const std::byte> bytes,
                       const std::string& name);
Picture read_picture(const std::filesystem::path& path);

// "JPEG, PNG, WebP": those that the library was built with.
std::string known_formats();

// A PNG file. Throws InvalidArgument where the library was built without PNG,
// the picture is empty, or rgb has not the values of all its pixels.
std::string encode_png(const Picture& picture);

// As Pillow does with BILINEAR, to the bit, and so as torchvision does: linear
// interpolation, with a wider filter where the picture becomes smaller. Throws
// InvalidArgument for an empty picture or size, and where the new width times
// the old or the new height is above kMostPixels.
Picture resize(const Picture& picture, std::int64_t width, std::int64_t height);

// As torchvision's Resize(side) and CenterCrop(side): the shorter side becomes
// `side`, and the middle is cut out. Nothing else is computed, so the picture
// may be as long and narrow as it likes.
Picture resize_and_crop(const Picture& picture, std::int64_t side);

}  // namespace regard::pictures
