// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "regard/core/random.h"
#include "regard/nn/transformer.h"

namespace regard::test {

// Tokens below vocab, in sentences of these lengths.
inline nn::PackedTokens random_sentences(
    const std::vector<std::int64_t>& lengths, std::int64_t vocab,
    std::uint64_t seed) {
  Random random(seed);
  nn::PackedTokens packed;
  for (const std::int64_t length : lengths) {
    for (std::int64_t i = 0; i < length; ++i) {
      packed.tokens.push_back(static_cast<std::int32_t>(random.below(vocab)));
    }
    packed.offsets.push_back(packed.size());
  }
  return packed;
}

}  // namespace regard::test
