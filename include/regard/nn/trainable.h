// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "regard/tensor/tensor.h"

namespace regard::nn {

// What a batch cost: sums, so that batches can be added up.
struct LossSum {
  double loss = 0;          // what is learnt from, smoothing and all
  double likelihood = 0;    // -log p(target), without smoothing
  std::int64_t tokens = 0;  // how many targets the sums are over
  LossSum& operator+=(const LossSum& other) {
    loss += other.loss;
    likelihood += other.likelihood;
    tokens += other.tokens;
    return *this;
  }
};

// What a training loop needs of a model, and all that it knows of it.
template <typename Batch>
class Trainable {
 public:
  virtual ~Trainable() = default;

  // The values to learn, by name, in one fixed order. An optimiser writes to
  // them between calls; names and shapes stay.
  virtual StateDict& parameters() = 0;

  // The loss of a training batch, with dropout drawn from `seed`. Adds the
  // gradients of the sum of the losses to `gradients`, which holds a tensor
  // for each parameter, or is empty and then filled. The bits depend on the
  // parameters, the batch and the seed, not on the number of threads.
  virtual LossSum loss_and_gradients(const Batch& batch, std::uint64_t seed,
                                     StateDict& gradients) = 0;

  // The loss alone, without dropout: validation.
  virtual LossSum loss(const Batch& batch) = 0;
};

// Sentences laid one after the other, without padding: sentence s owns the
// tokens [offsets[s], offsets[s + 1]).
struct PackedTokens {
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> offsets{0};

  std::int64_t sequences() const {
    return static_cast<std::int64_t>(offsets.size()) - 1;
  }
  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
};

// Pairs of sentences. The decoder reads target (it starts with the token that
// starts a sentence) and shall say, at the same places, target_out (the same
// sentence one to the left, and the token that ends it).
struct TranslationBatch {
  PackedTokens source;
  PackedTokens target;
  std::vector<std::int32_t> target_out;  // as long as target.tokens
};

}  // namespace regard::nn
