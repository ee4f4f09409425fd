// SPDX-License-Identifier: Apache-2.0
#include "tasks/repetition.h"

#include <cstddef>

#include "text/unicode.h"

namespace regard::tasks {
namespace {

constexpr std::size_t kLongest = 12;
constexpr std::size_t kTimes = 4;

bool is_of_words(char32_t c) {
  return !text::is_white_space(c) && !text::is_punctuation(c) &&
         !(c >= '0' && c <= '9');
}

}  // namespace

bool has_repetition(std::string_view text) {
  text::Chars chars;
  text::decode_utf8(text, 0, chars);
  chars.push_back({' ', {}});  // the last word ends, too
  for (std::size_t length = 1; length <= kLongest; ++length) {
    std::size_t equal = 0;  // characters to the one `length` before
    bool words = false;
    for (std::size_t i = length; i < chars.size(); ++i) {
      if (chars[i].code != chars[i - length].code) {
        equal = 0;
        words = false;
        continue;
      }
      ++equal;
      words = words || is_of_words(chars[i].code);
      if (words && equal >= (kTimes - 1) * length) return true;
    }
  }
  return false;
}

}  // namespace regard::tasks
