// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/attention_forward.h"

namespace regard::kernels {

// What is to be remembered of a block of keys: see attention_forward_weights.
struct KeptKeys {
  std::int64_t begin, end;
  float max[kGroupRows];
};
// The most of them that there are of so many keys.
constexpr std::int64_t kept_keys_count(std::int64_t keys) {
  return (keys / kSplitKeys + 1) * (kSplitKeys / kKeyBlock + 1);
}

// Where the weights of a block of rows go: to `rows`, or on top of `sums`.
struct AttentionWeights {
  std::int64_t keys;  // all that there are
  float* tile;        // [keys][kGroupRows], scratch
  float* rows;        // [row_count][keys], `stride` apart; hidden keys get 0
  std::int64_t stride;
  float* sums;  // [keys][kGroupRows] += share * weights, or null for rows
  float share;
  KeptKeys* kept;  // scratch of attention_forward_weights
};

// The weights before dropout of at most kGroupRows rows. Values, out and lse of
// the block are not used. Needs attention_has_kernel(). The scores are computed
// once: they stand in `tile` until the row's maximum and sum are known.
void attention_weights_block(const AttentionBlock& block,
                             const AttentionWeights& to) noexcept;

// The same and attention_forward_block at once: the weights are taken as they
// are made, and scaled when the row's maximum and sum are known. They have the
// same bits, but for weights below 1e-36.
void attention_forward_weights(const AttentionBlock& block,
                               const AttentionWeights& to) noexcept;

// to.rows[r][key] <- to.sums[key][r], for `count` rows.
void attention_sums_to_rows(const AttentionWeights& to, int count) noexcept;

// -sum of w ln w, in a fixed order; a weight of 0 adds nothing.
double weights_entropy(const float* weights, std::int64_t count) noexcept;

// The first place in [from, count) whose weight is above `least` or NaN, or
// count.
std::int64_t weights_above(const float* weights, std::int64_t from,
                           std::int64_t count, float least) noexcept;

}  // namespace regard::kernels
