// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/attention_forward.h"

namespace regard::kernels {

// Where the weights of a block of rows go.
struct AttentionWeights {
  float* rows;  // [row_count][keys], rows `stride` apart
  std::int64_t stride;
  std::int64_t keys;  // all keys that there are; hidden ones get 0
  // If given, takes share * weights on top of what it holds, and rows are
  // scratch.
  float* sums;  // [row_count][keys], rows `sums_stride` apart
  std::int64_t sums_stride;
  float share;
};

// The weights before dropout of at most kGroupRows rows. Values, out and lse of
// the block are not used. Needs attention_has_kernel(). The scores are computed
// once: they stand in `rows` until the row's maximum and sum are known.
void attention_weights_block(const AttentionBlock& block,
                             const AttentionWeights& to) noexcept;

// -sum of w ln w, in a fixed order; a weight of 0 adds nothing.
double weights_entropy(const float* weights, std::int64_t count) noexcept;

// The first place in [from, count) whose weight is above `least` or NaN, or
// count.
std::int64_t weights_above(const float* weights, std::int64_t from,
                           std::int64_t count, float least) noexcept;

}  // namespace regard::kernels
