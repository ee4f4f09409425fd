// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/core/threads.h"
#include "regard/tasks/language_model.h"

namespace regard::tasks {

// How the next token is chosen.
struct Sampling {
  float temperature = 0.0f;  // scores are divided by it; 0: always the best
  std::int64_t top_k = 0;    // only the k best tokens; 0: all
  float top_p = 1.0f;  // of those, the fewest that have this much probability
  std::uint64_t seed = 0;
};

// The next token of a text, from the scores of all. `position` is how many
// tokens the text has: the same scores, sampling and position give the same
// token. Of equal scores the smaller token counts as better. Throws
// InvalidArgument for a temperature below 0, a top_k below 0 or a top_p outside
// (0, 1], and for scores that are NaN or infinite.
std::int32_t sample_token(std::span<const float> scores,
                          const Sampling& sampling, std::int64_t position);

struct GenerateOptions {
  std::int64_t max_tokens = 256;  // at most so many are added to each prompt
  Sampling sampling{};
  KVCacheKind cache = KVCacheKind::kContiguous;  // or kPaged
  Threads threads{};
};

// What was written after one prompt.
struct Continuation {
  std::string text;
  std::int64_t prompt_tokens = 0;  // those that begin a text among them
  std::int64_t tokens = 0;
};

// Continues each prompt, all at once, until the model ends its text, max_tokens
// are written or the context is full. A prompt may be empty where the model has
// a token that begins or ends a text: it then begins by itself.
// `on_text(prompt, text)` gets each piece as it is written, whole characters
// each. Each continuation is the same as alone, with any cache and any number
// of threads.
//
// Throws InvalidArgument for a prompt longer than the model's context.
std::vector<Continuation> generate(
    const LoadedModel& loaded, std::span<const std::string> prompts,
    const GenerateOptions& options,
    FunctionRef<void(std::int64_t, std::string_view)> on_text);

}  // namespace regard::tasks
