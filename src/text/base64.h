// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace regard::text {

// What the letters stand for, or nothing where they are not base64.
inline std::optional<std::string> from_base64(std::string_view letters) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (letters.ends_with('=')) letters.remove_suffix(1);
  std::string bytes;
  bytes.reserve(letters.size() / 4 * 3 + 3);
  unsigned bits = 0;
  int count = 0;
  for (const char c : letters) {
    const std::size_t value = kLetters.find(c);
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<unsigned>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>(bits >> count & 0xFF));
    }
  }
  return bytes;
}

}  // namespace regard::text
