// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace regard::cli {

// One thing a reader sees: a code point with the marks that combine with it,
// and how many cells of a terminal it takes.
struct Glyph {
  std::string text;
  int cells = 1;
};

// UTF-8 as glyphs. What is not valid UTF-8, and control characters, which could
// move the cursor, become U+FFFD.
std::vector<Glyph> glyphs_of(std::string_view text);

// How many cells the text takes. Chinese characters take two each.
int cells_of(std::string_view text);

// The text cut or filled with blanks to exactly so many cells.
std::string fitted(std::string_view text, int cells);

// The words of the text in lines of at most `width` cells, each after `indent`
// blanks and with a line end.
std::string wrapped(std::string_view text, int indent, int width);

// Words between white space. Characters that are two cells wide are words of
// their own, since Chinese and Japanese put no blanks between words.
std::vector<std::string> words_of(std::string_view text);

// With how many bytes of a control character the text begins, of C0, C1 or
// DEL; 0: with none. A terminal obeys them.
std::size_t control_bytes(std::string_view text);

// The text on one line of ASCII or UTF-8, for an error message: control
// characters come as \xNN.
std::string on_one_line(std::string_view text);

}  // namespace regard::cli
