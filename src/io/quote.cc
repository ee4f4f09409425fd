// SPDX-License-Identifier: Apache-2.0
#include "io/quote.h"

#include <cstddef>

namespace regard::io {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMost = 200;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result = "'";
  for (const char c : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      result += c;
    } else {
      result += "\\x";
      result += kDigits[byte >> 4];
      result += kDigits[byte & 15];
    }
  }
  result += text.size() > kMost ? "...'" : "'";
  return result;
}

}  // namespace regard::io
