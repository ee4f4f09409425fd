// SPDX-License-Identifier: Apache-2.0
// Cross attention: the queries come from one sequence, the keys and values from
// another. Three words of a translation look for their words in two source
// sentences of different lengths.
#include <cstdint>
#include <cstdio>

#include "regard/regard.h"

int main() {
  constexpr std::int64_t kBatch = 2, kQueries = 3, kKeys = 6, kWidth = 32;
  const std::int64_t lengths[kBatch] = {6, 4};  // the rest is padding
  const std::int64_t wanted[kBatch][kQueries] = {{5, 0, 2}, {3, 1, 0}};

  // One head: [batch, heads, length, width]. A query is the key that it looks
  // for, and noise; a value is the number of its place.
  regard::Random random(1);
  regard::Tensor k({kBatch, 1, kKeys, kWidth}), v({kBatch, 1, kKeys, 1});
  regard::Tensor q({kBatch, 1, kQueries, kWidth});
  for (float& x : k.values<float>()) x = random.normal();
  for (std::int64_t b = 0; b < kBatch; ++b) {
    for (std::int64_t j = 0; j < kKeys; ++j) {
      v.view<float, 4>()(b, 0, j, 0) = static_cast<float>(j);
    }
    for (std::int64_t i = 0; i < kQueries; ++i) {
      for (std::int64_t d = 0; d < kWidth; ++d) {
        q.view<float, 4>()(b, 0, i, d) =
            k.view<float, 4>()(b, 0, wanted[b][i], d) + 0.3f * random.normal();
      }
    }
  }

  // The output and the weights in one pass. As many rows as there are queries.
  regard::Tensor out({kBatch, 1, kQueries, 1});
  regard::Tensor weights({kBatch, 1, kQueries, kKeys});
  regard::attention_with_weights(q.view<float, 4>(), k.view<float, 4>(),
                                 v.view<float, 4>(), out.view<float, 4>(),
                                 {.weights = weights.view<float, 4>()},
                                 {.mask = regard::mask::lengths(lengths)});

  bool found_all = true;
  for (std::int64_t b = 0; b < kBatch; ++b) {
    for (std::int64_t i = 0; i < kQueries; ++i) {
      std::printf("sentence %d, query %d:", static_cast<int>(b),
                  static_cast<int>(i));
      std::int64_t best = 0;
      for (std::int64_t j = 0; j < kKeys; ++j) {
        const float weight = weights.view<float, 4>()(b, 0, i, j);
        std::printf(" %.3f", weight);
        if (weight > weights.view<float, 4>()(b, 0, i, best)) best = j;
        if (j >= lengths[b]) found_all &= weight == 0;  // nobody sees padding
      }
      std::printf("   place %.2f\n", out.view<float, 4>()(b, 0, i, 0));
      found_all &= best == wanted[b][i];
    }
  }
  std::printf(found_all ? "every query found its key\n"
                        : "a query looked elsewhere\n");
  return found_all ? 0 : 1;
}
