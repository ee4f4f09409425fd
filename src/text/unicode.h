// SPDX-License-Identifier: Apache-2.0
// What the tokenizers ask about characters; utf8proc knows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regard::text {

// Bytes of a text, the end excluded.
struct Range {
  std::uint32_t begin = 0, end = 0;
  bool operator==(const Range&) const = default;
};

// A character, and the bytes of the text that it was made from.
struct Char {
  char32_t code = 0;
  Range from;
};
using Chars = std::vector<Char>;

// The character that starts `text`: {U+FFFD, 1} where that is not UTF-8.
struct Decoded {
  char32_t code = 0;
  std::uint32_t length = 0;
  bool valid = true;
};
Decoded decode_first(std::string_view text);
// The last one of a text that is UTF-8.
char32_t last_char(std::string_view text);

// The characters of a text whose first byte has the number `base`.
void decode_utf8(std::string_view text, std::uint32_t base, Chars& chars);
void encode_utf8(const Chars& chars, std::string& text);

bool is_white_space(char32_t c);
bool is_punctuation(char32_t c);  // the P categories
bool is_numeric(char32_t c);      // the N categories
bool is_mark(char32_t c);         // Mn
bool is_any_mark(char32_t c);     // the M categories
bool is_other(char32_t c);        // control, format, private use

// Unicode's default mapping, whatever the neighbours: a capital I with a dot
// becomes two characters.
void lower_case(Chars& chars);

enum class NormalForm { kC, kD, kKC, kKD };
// In time n log n, however many marks follow a letter.
void normalize(Chars& chars, NormalForm form);

// Cuts characters into grapheme clusters: visit(first, end).
template <typename Visit>
void for_each_cluster(const Chars& chars, const Visit& visit);
// Does a cluster end between the two? `state` starts as 0.
bool cluster_ends(char32_t before, char32_t after, std::int32_t& state);

template <typename Visit>
void for_each_cluster(const Chars& chars, const Visit& visit) {
  std::int32_t state = 0;
  std::size_t first = 0;
  for (std::size_t i = 1; i <= chars.size(); ++i) {
    if (i == chars.size() ||
        cluster_ends(chars[i - 1].code, chars[i].code, state)) {
      visit(first, i);
      first = i;
    }
  }
}

}  // namespace regard::text
