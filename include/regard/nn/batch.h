// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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

// Sentences laid one after the other, without padding: sentence s owns the
// tokens [offsets[s], offsets[s + 1]).
struct PackedTokens {
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> offsets{0};

  std::int64_t sequences() const {
    return static_cast<std::int64_t>(offsets.size()) - 1;
  }
  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
  std::span<const std::int32_t> sequence(std::int64_t index) const {
    const auto s = static_cast<std::size_t>(index);
    return std::span(tokens).subspan(
        static_cast<std::size_t>(offsets[s]),
        static_cast<std::size_t>(offsets[s + 1] - offsets[s]));
  }
  std::int64_t length(std::int64_t index) const {
    const auto s = static_cast<std::size_t>(index);
    return offsets[s + 1] - offsets[s];
  }
  void append(std::span<const std::int32_t> sequence) {
    tokens.insert(tokens.end(), sequence.begin(), sequence.end());
    offsets.push_back(size());
  }
  std::int64_t longest() const {
    std::int64_t most = 0;
    for (std::size_t s = 1; s < offsets.size(); ++s) {
      most = std::max(most, offsets[s] - offsets[s - 1]);
    }
    return most;
  }
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
