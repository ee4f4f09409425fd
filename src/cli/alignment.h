// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/screen.h"
#include "regard/tasks/translator.h"

namespace regard::cli {

// A piece of text as pictures name it: with "_" where a word begins, which
// SentencePiece writes as U+2581.
std::string piece_label(const std::string& piece);

// Where each piece of a translation looked, as a picture: a line for each piece
// of the translation, a column for each of the source. Empty where one has no
// pieces.
std::string draw_alignment(const tasks::Translation& translation,
                           const Screen& screen);

}  // namespace regard::cli
