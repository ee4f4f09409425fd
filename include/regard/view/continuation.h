// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "regard/core/threads.h"
#include "regard/tasks/language_model.h"
#include "regard/view/trace.h"

namespace regard::view {

struct ContinuationOptions {
  // Greedy continuation: at most so many tokens.
  std::int64_t max_tokens = 0;
  Threads threads{};
};

// What a decoder-only model looked at in a text, and in what it went on with:
// the section decoder. Its axis "text" has the pieces of both, as the text has
// them, a blank before a piece written as U+2581. Throws InvalidArgument for a
// text without tokens, or one that is too long with what follows.
Trace trace_continuation(const tasks::LoadedModel& loaded,
                         const std::string& text,
                         const ContinuationOptions& options = {});

}  // namespace regard::view
