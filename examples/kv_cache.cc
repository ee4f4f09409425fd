// SPDX-License-Identifier: Apache-2.0
// Generation with a KV cache: a prompt is read in one call (prefill), then each
// step appends one token and attends to all that came before (decode). Keys and
// values of earlier tokens are never computed again, and the rows have the very
// bits of one causal pass over the whole text. Two texts of different lengths
// share the cache.
#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "regard/regard.h"

namespace {

constexpr std::int64_t kHeads = 8, kKVHeads = 2, kWidth = 64;  // GQA: 8 over 2
constexpr std::int64_t kPrompts[] = {7, 12};
constexpr std::int64_t kSteps = 5;

using regard::Tensor;
using regard::TensorView;

Tensor random_rows(regard::Random& random, std::int64_t heads,
                   std::int64_t len) {
  Tensor rows({1, heads, len, kWidth});
  for (float& x : rows.values<float>()) x = random.normal();
  return rows;
}

// Tokens [begin, end) of a [1, heads, len, width] tensor, without a copy.
TensorView<float, 4> tokens(Tensor& rows, std::int64_t begin,
                            std::int64_t end) {
  const TensorView<float, 4> all = rows.view<float, 4>();
  return {all.at(0, 0, begin),
          {1, all.extent(1), end - begin, kWidth},
          all.strides()};
}

}  // namespace

int main() {
  regard::Random random(1);
  regard::KVCache cache({.sequences = 2, .kv_heads = kKVHeads, .d_k = kWidth});
  const regard::AttentionOptions causal{.mask = regard::mask::causal()};
  bool same = true;
  for (const std::int64_t sequence : {0, 1}) {
    const std::int64_t prompt = kPrompts[sequence], len = prompt + kSteps;
    Tensor q = random_rows(random, kHeads, len);
    Tensor k = random_rows(random, kKVHeads, len);
    Tensor v = random_rows(random, kKVHeads, len);
    Tensor out({1, kHeads, len, kWidth});

    // Prefill: all rows of the prompt in one call, and its tokens kept.
    regard::attention_forward(tokens(q, 0, prompt), tokens(k, 0, prompt),
                              tokens(v, 0, prompt), tokens(out, 0, prompt),
                              causal);
    const std::int64_t which[] = {sequence};
    cache.append(which, tokens(k, 0, prompt), tokens(v, 0, prompt));

    // Decode: one token after the other, as a model makes them.
    for (std::int64_t t = prompt; t < len; ++t) {
      cache.append(which, tokens(k, t, t + 1), tokens(v, t, t + 1));
      regard::attention_decode(tokens(q, t, t + 1), cache, which,
                               tokens(out, t, t + 1));
    }

    Tensor whole({1, kHeads, len, kWidth});
    regard::attention_forward(tokens(q, 0, len), tokens(k, 0, len),
                              tokens(v, 0, len), whole.view<float, 4>(),
                              causal);
    const bool equal =
        std::ranges::equal(out.values<float>(), whole.values<float>());
    std::printf("sequence %d: %d tokens read, %d decoded, %s\n",
                static_cast<int>(sequence), static_cast<int>(prompt),
                static_cast<int>(cache.length(sequence) - prompt),
                equal ? "the bits of one pass" : "other bits than one pass");
    same &= equal;
  }
  return same ? 0 : 1;
}
