// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/tasks/translator.h"
#include "regard/text/tokenizer.h"

namespace regard::tasks {

// The best translation of each text. A text may have any number of lines and
// sentences: these are translated one by one and joined again; line breaks and
// blank lines stay as they are. A sentence with more pieces than the model can
// read is cut where a clause ends, or a word. A number with a sign between its
// digits (25.50, 14:30) or of four digits or more that the translation does not
// have is put where the model puts another one. Where a translation says the
// same words four times in a row, and the sentence does not, it is made again
// without repeating two tokens; not for a model that is imported. A number that
// only a repetitive translation has is kept with it. The score is the mean of
// the sentences'. A model that reads texts whole gets each line as it is. Where
// options.to is empty, the script of each text as a whole tells.
//
// options.nbest and align must be 1 and false. Throws what
// Translator::translate throws.
std::vector<Translation> translate_texts(const Translator& translator,
                                         std::span<const std::string> texts,
                                         const TranslateOptions& options = {});

// The sentences of a line: the bytes of each, blanks around it left out. One
// ends behind . ! ? where a blank follows and no small letter, unless the word
// before is an abbreviation, and behind their Chinese forms.
std::vector<text::ByteRange> find_sentences(std::string_view line);

}  // namespace regard::tasks
