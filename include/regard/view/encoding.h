// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "regard/tasks/text_encoder.h"
#include "regard/view/trace.h"

namespace regard::view {

// What a pretrained encoder looked at: the section encoder. Its axis "source"
// has the words of the text, with the special tokens around them: the pieces of
// a word are one, which looks as its pieces do on average, and receives what
// they receive together. Throws what TextEncoder::trace throws.
Trace trace_encoding(const tasks::TextEncoder& encoder, const std::string& text,
                     const tasks::TextEncoderOptions& options = {});

}  // namespace regard::view
