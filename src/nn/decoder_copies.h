// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nn/transformer_layer.h"
#include "ops/arena.h"
#include "ops/copying.h"
#include "ops/rows.h"
#include "regard/nn/batch.h"

namespace regard::nn::detail {

// Null: the model copies nothing.
struct CopyWeights {
  PackedLinear query, key, gate;
};

// What a model that copies keeps of some sources: their tokens, and the keys of
// the head that copies.
class DecoderCopies {
 public:
  // memory [source tokens, model_dim] is what the encoder made.
  DecoderCopies(const CopyWeights& weights, const PackedTokens& sources,
                const ops::Rows& memory, ops::MemoryPool& pool,
                Threads threads);

  // Logits [hypotheses, vocab] become log-probabilities of what is written or
  // copied. x [hypotheses, model_dim] is what they were made of; hypotheses
  // [q_offsets[s], q_offsets[s + 1]) have source s.
  void add(const ops::Rows& x, std::span<const std::int64_t> q_offsets,
           const ops::Rows& logits, ops::Arena& work, Threads threads) const;

 private:
  const CopyWeights* weights_;
  std::vector<std::int64_t> offsets_;
  std::vector<ops::CopySource> sources_;
  std::shared_ptr<float> keys_;  // [source tokens, model_dim]
};

}  // namespace regard::nn::detail
