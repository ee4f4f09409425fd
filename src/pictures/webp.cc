// SPDX-License-Identifier: Apache-2.0
#include <webp/decode.h>

#include <vector>

#include "pictures/formats.h"
#include "regard/core/error.h"

namespace regard::pictures {

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
  return picture;
}

}  // namespace regard::pictures
