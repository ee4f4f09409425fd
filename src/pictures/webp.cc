// SPDX-License-Identifier: Apache-2.0
#include <webp/decode.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "pictures/formats.h"
#include "regard/core/error.h"

namespace regard::pictures {
namespace {

// After 12 bytes come chunks: a name, a size, and as many bytes, with one more
// where the size is odd.
int orientation_of(Bytes file) {
  constexpr std::size_t kFileHead = 12, kChunkHead = 8;
  Bytes rest = file.subspan(std::min(kFileHead, file.size()));
  while (rest.size() >= kChunkHead) {
    std::size_t size = 0;
    for (std::size_t i = kChunkHead; i-- > 4;) {
      size = size << 8 | std::to_integer<std::size_t>(rest[i]);
    }
    size = std::min(size, rest.size() - kChunkHead);
    const Bytes data = rest.subspan(kChunkHead, size);
    if (std::memcmp(rest.data(), "EXIF", 4) == 0) return exif_orientation(data);
    rest = rest.subspan(std::min(kChunkHead + size + size % 2, rest.size()));
  }
  return 1;
}

}  // namespace

bool webp_available() { return true; }

Picture decode_webp(Bytes bytes, const std::string& name) {
  const auto* const data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const auto damaged = [&](const char* why) {
    throw_parse_error("read_picture", "'", name,
                      "' is no WebP file that can be read: ", why);
  };
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data, bytes.size(), &features) != VP8_STATUS_OK) {
    damaged("its header is broken");
  }
  if (features.has_animation) damaged("it is an animation");
  Picture picture = sized_picture(features.width, features.height, name);
  const std::int64_t pixels = picture.width * picture.height;
  std::vector<std::uint8_t> rgba(static_cast<std::size_t>(4 * pixels));
  if (WebPDecodeRGBAInto(data, bytes.size(), rgba.data(), rgba.size(),
                         4 * features.width) == nullptr) {
    damaged("its pixels are broken or cut off");
  }
  lay_on_white(rgba.data(), pixels, picture.rgb.data());
  return upright(std::move(picture), orientation_of(bytes));
}

}  // namespace regard::pictures
