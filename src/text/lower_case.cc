// SPDX-License-Identifier: Apache-2.0
#include "text/lower_case.h"

#include "text/unicode.h"

namespace regard::text {

std::u32string lower_case(std::u32string_view text) {
  Chars chars;
  chars.reserve(text.size());
  for (const char32_t c : text) chars.push_back({c, {}});
  lower_case(chars);
  std::u32string small;
  small.reserve(chars.size());
  for (const Char& c : chars) small.push_back(c.code);
  return small;
}

}  // namespace regard::text
