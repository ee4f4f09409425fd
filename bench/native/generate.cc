// SPDX-License-Identifier: Apache-2.0
// tasks::LanguageModel at work, for bench/generate.py.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bench.h"
#include "regard/tasks/language_model.h"

namespace regard::bench {
namespace {

struct Writing {
  tasks::LoadedModel loaded;
  std::vector<std::int32_t> tokens;  // of the prompt
  std::vector<float> scores;         // after the last token that was read
};

void read(tasks::LanguageState& state, std::span<const std::int32_t> tokens) {
  const tasks::LanguageState::Reading reading{0, tokens};
  state.read({&reading, 1});
}

void keep_scores(Writing& w, const tasks::LanguageState& state) {
  const auto logits = state.logits();
  w.scores.assign(logits.at(0), logits.at(0) + logits.extent(1));
}

}  // namespace
}  // namespace regard::bench

using regard::bench::Writing;

// The prompt is `count` of tokens. as_stored: computed with the integers of the
// file, else in float32.
extern "C" void* regard_bench_make_writer(const char* path,
                                          const std::int32_t* tokens,
                                          std::int64_t count,
                                          std::int32_t as_stored) {
  using regard::ops::WeightStorage;
  return regard::bench::made([&] {
    return new Writing{regard::tasks::load_language_model(
                           path, std::nullopt,
                           as_stored != 0 ? WeightStorage::kAsStored
                                          : WeightStorage::kFloat32),
                       {tokens, tokens + count},
                       {}};
  });
}

extern "C" void regard_bench_release_writer(void* writer) {
  delete static_cast<Writing*>(writer);
}

extern "C" const float* regard_bench_writer_scores(void* writer) {
  return static_cast<Writing*>(writer)->scores.data();
}

// How many weights the products of all layers have, and that of the scores.
extern "C" std::int64_t regard_bench_layer_weights(void* writer) {
  const auto& c = static_cast<Writing*>(writer)->loaded.model.config();
  const std::int64_t heads = (2 * c.heads + 2 * c.kv_heads) * c.head_dim;
  const std::int64_t inner = is_gated(c.activation) ? 3 : 2;
  return c.layers * c.model_dim * (heads + inner * c.feed_forward_dim);
}
extern "C" std::int64_t regard_bench_output_weights(void* writer) {
  const auto& c = static_cast<Writing*>(writer)->loaded.model.config();
  return c.vocab * c.model_dim;
}

extern "C" std::int64_t regard_bench_vocabulary(void* writer) {
  return static_cast<Writing*>(writer)->loaded.model.config().vocab;
}

// Reads the prompt at once.
extern "C" double regard_bench_prefill(void* writer, std::int32_t threads,
                                       std::int64_t calls) {
  auto& w = *static_cast<Writing*>(writer);
  return regard::bench::guarded([&] {
    regard::tasks::LanguageState state(w.loaded.model,
                                       {.threads = {.count = threads}});
    const double seconds = regard::bench::timed(calls, [&] {
      state.truncate(0, 0);
      regard::bench::read(state, w.tokens);
    });
    regard::bench::keep_scores(w, state);
    return seconds;
  });
}

// After the prompt, reads its first `steps` tokens again, one at a time. Only
// these are timed.
extern "C" double regard_bench_write(void* writer, std::int64_t steps,
                                     std::int32_t threads, std::int64_t calls) {
  auto& w = *static_cast<Writing*>(writer);
  return regard::bench::guarded([&] {
    regard::tasks::LanguageState state(w.loaded.model,
                                       {.threads = {.count = threads}});
    regard::bench::read(state, w.tokens);
    const std::int64_t prompt = state.length(0);
    const double seconds = regard::bench::timed(calls, [&] {
      state.truncate(0, prompt);
      for (std::int64_t i = 0; i < steps; ++i) {
        regard::bench::read(
            state, std::span(w.tokens).subspan(static_cast<std::size_t>(i), 1));
      }
    });
    regard::bench::keep_scores(w, state);
    return seconds;
  });
}
