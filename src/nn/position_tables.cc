// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "nn/transformer_pass.h"

namespace regard::nn::detail {
namespace {

std::int64_t longest(const PackedTokens& packed) {
  std::int64_t most = 0;
  for (std::size_t s = 1; s < packed.offsets.size(); ++s) {
    most = std::max(most, packed.offsets[s] - packed.offsets[s - 1]);
  }
  return most;
}

// Grown by doubling, so that growing is rare.
std::int64_t room_for(std::int64_t places) {
  return static_cast<std::int64_t>(std::bit_ceil(
      static_cast<std::uint64_t>(std::max<std::int64_t>(64, places))));
}

}  // namespace

TensorView<const float, 2> PositionTables::sinusoidal(
    const TransformerConfig& c, std::int64_t places) {
  if (sinusoidal_.rank() != 2 || sinusoidal_.shape()[0] < places) {
    sinusoidal_ = sinusoidal_positions(room_for(places), c.model_dim);
  }
  return static_cast<const Tensor&>(sinusoidal_).view<float, 2>();
}

void PositionTables::reserve(const TransformerConfig& c, std::int64_t places) {
  if (c.positions == Positions::kSinusoidal) sinusoidal(c, places);
  rotary(c, places);
}

void PositionTables::reserve(const TransformerConfig& c,
                             const PackedTokens& packed) {
  reserve(c, longest(packed));
}

TensorView<const float, 2> PositionTables::sinusoidal(
    const TransformerConfig& c, const PackedTokens& packed) {
  return sinusoidal(c, longest(packed));
}

Sentences PositionTables::rotary(const TransformerConfig& c,
                                 std::int64_t places) {
  if (c.positions != Positions::kRotary) return {};
  if (rotary_.cos.rank() != 2 || rotary_.cos.shape()[0] < places) {
    rotary_ =
        rotary_table({.rotary_dim = c.model_dim / c.heads}, room_for(places));
  }
  const RotaryTable& table = rotary_;
  return {{}, table.cos.view<float, 2>(), table.sin.view<float, 2>()};
}

Sentences PositionTables::sentences(const TransformerConfig& c,
                                    const PackedTokens& packed) {
  Sentences sentences = rotary(c, longest(packed));
  sentences.offsets = packed.offsets;
  return sentences;
}

}  // namespace regard::nn::detail
