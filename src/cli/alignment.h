// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/screen.h"
#include "regard/tasks/translator.h"

namespace regard::cli {

// A piece of text as pictures name it: with "_" where a word begins, which
// SentencePiece writes as U+2581.
std::string piece_label(const std::string& piece);

// Pieces [begin, end) that make a word. Chinese, which has no blanks, keeps its
// pieces, and so do punctuation and tags.
struct AlignedWord {
  std::size_t begin = 0, end = 0;
  std::string text = {};
};
std::vector<AlignedWord> words_of(const std::vector<std::string>& pieces);

// Where each word of a translation looked, as a picture: a line for each word
// of the translation, a column for each of the source. Empty where one has no
// pieces.
std::string draw_alignment(const tasks::Translation& translation,
                           const Screen& screen);

}  // namespace regard::cli
