// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "regard/tasks/translator.h"
#include "regard/view/trace.h"

namespace regard::view {

// What a translator looked at: sections encoder, decoder and cross. Axis
// "source" is what the encoder read, "target" what each step of the decoder
// wrote, "read" what it read, so that query i of the decoder stands at key i.
// The translation is the one that Translator::translate gives. Throws what
// Translator::trace throws, and InvalidArgument for a sentence of which the
// model reads nothing.
Trace trace_translation(const tasks::Translator& translator,
                        const std::string& sentence,
                        const tasks::TranslateOptions& options = {});

// What a model is worth, as note.json in its folder says, a line for each
// language; empty where there is no such file. Throws ParseError for a file
// that says something else.
Note read_note(const std::filesystem::path& model);

}  // namespace regard::view
