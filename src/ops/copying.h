// SPDX-License-Identifier: Apache-2.0
// The output of a pointer-generator (See et al., 2017). The next token is
// written or copied from the source:
//
//   p(w) = g softmax(scores)[w] + (1 - g) c(w),    g = 1 / (1 + exp(-gate))
//
// where c(w) is the sum of the attention weights of the places that hold w.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cross_entropy.h"

namespace regard::ops {

// A source as copies see it. All sums over it run in the order of its places.
struct CopySource {
  std::vector<std::int32_t> tokens;  // each once, rising
  std::vector<std::int32_t> slots;   // [places]: which of them stands there

  explicit CopySource(std::span<const std::int32_t> source);
};

// log p in the place of the scores [vocab]. weights [places].
void mix_copies(const CopySource& source, const float* weights, float gate,
                std::span<float> scores);

// One row of the loss: weights [places] and scores [vocab] by which its target
// has a probability.
struct CopyRow {
  const CopySource* source = nullptr;
  float* weights = nullptr;
  float gate = 0;
  std::span<float> scores;
};
// As kernels::cross_entropy_row, of p. With a gradient, that of the scores
// takes their place, that of the scores whose softmax the weights are takes the
// place of the weights, and d_gate is set.
kernels::CrossEntropyRow copy_cross_entropy_row(const CopyRow& row,
                                                std::int32_t target,
                                                float smoothing,
                                                kernels::WithGradient gradient,
                                                float& d_gate);

}  // namespace regard::ops
