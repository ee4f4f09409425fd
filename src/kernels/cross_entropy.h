// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Softmax over a row of scores, for the loss and for choosing the next token.
// Sums run in sixteen chains: element i belongs to chain i % 16, each goes in
// index order, and the chains are added in index order. So the bits do not
// depend on the width of the vectors.
namespace regard::kernels {

struct CrossEntropyRow {
  double loss = 0;        // with label smoothing
  double likelihood = 0;  // -log p(target)
};

// The loss of one row against share(target) = 1 - s + s / n, share(others) =
// s / n: the sum of -share log p. If `gradient`, scores are overwritten with
// that of the loss: p - share. n > 0.
enum class WithGradient { kNo, kYes };
CrossEntropyRow cross_entropy_row(float* scores, std::int64_t n,
                                  std::int64_t target, float smoothing,
                                  WithGradient gradient) noexcept;

// log of the sum of exp(score). n > 0.
float log_sum_exp_row(const float* scores, std::int64_t n) noexcept;

// The k largest scores, largest first, and their places; of equals the smaller
// place is first. NaN is larger than all. 0 < k <= n.
void best_scores(const float* scores, std::int64_t n, std::int64_t k,
                 std::int32_t* places, float* values) noexcept;

}  // namespace regard::kernels
