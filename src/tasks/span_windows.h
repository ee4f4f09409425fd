// SPDX-License-Identifier: Apache-2.0
// A context cut into windows that the encoder can read.
#pragma once

#include <cstdint>
#include <vector>

#include "regard/tasks/span_answerer.h"

namespace regard::tasks {

struct SpanWindows {
  std::vector<SpanWindow> windows;         // one at least; no targets
  std::vector<std::int64_t> first_tokens;  // of the context, for each
  std::int64_t first_place = 0;            // of the context in a window
  std::vector<text::ByteRange> offsets;    // of each token of the context
};
SpanWindows make_windows(const SpanQuestion& question,
                         const text::Tokenizer& tokenizer,
                         const SpanAnswererConfig& config);

}  // namespace regard::tasks
