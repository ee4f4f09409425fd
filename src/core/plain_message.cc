// SPDX-License-Identifier: Apache-2.0
#include "core/plain_message.h"

#include <algorithm>

namespace regard {
namespace {

bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }

bool may_be_in_name(char c) {
  return is_upper(c) || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
         c == '_' || c == ':';
}

// attention_forward, Translator, view::Section: what no English word looks
// like.
bool is_function(std::string_view word) {
  return !word.empty() &&
         std::all_of(word.begin(), word.end(), may_be_in_name) &&
         (is_upper(word.front()) || word.find("::") != word.npos ||
          word.find('_') != word.npos);
}

}  // namespace

std::string plain_message(std::string_view message) {
  constexpr std::string_view kEnd = ": ";
  std::string plain;
  for (;;) {
    const std::size_t end = message.find(kEnd);
    if (end == message.npos) return plain += message;
    const std::string_view part = message.substr(0, end);
    // Past the first, a bare name may be the key of a file.
    const bool qualified = part.find("::") != part.npos;
    if (!is_function(part) || !(plain.empty() || qualified)) {
      plain += message.substr(0, end + kEnd.size());
    }
    message.remove_prefix(end + kEnd.size());
  }
}

}  // namespace regard
