// SPDX-License-Identifier: Apache-2.0
#include "view/base64.h"

#include <algorithm>
#include <cstdint>

namespace regard::view {
namespace {

std::uint32_t byte_at(std::string_view bytes, std::size_t i) {
  return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0;
}

}  // namespace

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text((bytes.size() + 2) / 3 * 4, '=');
  for (std::size_t i = 0, to = 0; i < bytes.size(); i += 3, to += 4) {
    const std::uint32_t three = byte_at(bytes, i) << 16 |
                                byte_at(bytes, i + 1) << 8 |
                                byte_at(bytes, i + 2);
    const std::size_t digits = std::min<std::size_t>(bytes.size() - i, 3) + 1;
    for (std::size_t d = 0; d < digits; ++d) {
      text[to + d] = kDigits[three >> (18 - 6 * d) & 63];
    }
  }
  return text;
}

}  // namespace regard::view
