// SPDX-License-Identifier: Apache-2.0
#include "regard/text/utf8.h"

#include "regard/core/error.h"
#include "text/unicode.h"

namespace regard::text {
Decoded decode_first(std::string_view text) {
  const auto byte = [text](std::size_t i) {
    return static_cast<unsigned char>(text[i]);
  };
  constexpr Decoded kInvalid{0xFFFD, 1, false};
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1, true};
  const std::uint32_t length = first >= 0xF0   ? 4
                               : first >= 0xE0 ? 3
                               : first >= 0xC2 ? 2
                                               : 0;
  if (length == 0 || first > 0xF4 || text.size() < length) return kInvalid;
  char32_t code = first & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return kInvalid;
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  if (code < kLeast[length] || code > 0x10FFFF || surrogate) return kInvalid;
  return {code, length, true};
}

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const Decoded next = decode_first(text.substr(i));
    if (!next.valid) return i;
    i += next.length;
  }
  return std::string_view::npos;
}

std::u32string code_points(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Decoded next = decode_first(text.substr(i));
    require(next.valid, "code_points",
            "the text must be UTF-8; it is not at byte ", i);
    points.push_back(next.code);
    i += next.length;
  }
  return points;
}

void append_utf8(std::string& text, char32_t code_point) {
  const auto put = [&text](char32_t byte) {
    text.push_back(static_cast<char>(static_cast<unsigned char>(byte)));
  };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace regard::text
