// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "nn/transformer_pass.h"

namespace regard::nn {

PositionTables::PositionTables(const TransformerConfig& c, std::int64_t places)
    : places_(places) {
  if (c.positions == Positions::kSinusoidal) {
    sinusoidal_ = sinusoidal_positions(places, c.model_dim);
  } else if (c.positions == Positions::kRotary) {
    rotary_ = rotary_table({.rotary_dim = c.dim_of_head()}, places);
  }
}

TensorView<const float, 2> PositionTables::sinusoidal() const {
  if (!sinusoidal_) return {};
  return sinusoidal_->view<float, 2>();
}

const RotaryTable* PositionTables::rotary() const {
  return rotary_ ? &*rotary_ : nullptr;
}

std::shared_ptr<const PositionTables> detail::SharedPositionTables::for_places(
    const TransformerConfig& c, std::int64_t places) {
  const std::lock_guard lock(mutex_);
  if (tables_ == nullptr || tables_->places() < places) {
    // Grown by doubling, so that growing is rare.
    const auto room = std::bit_ceil(
        static_cast<std::uint64_t>(std::max<std::int64_t>(64, places)));
    tables_ = std::make_shared<const PositionTables>(
        c, static_cast<std::int64_t>(room));
  }
  return tables_;
}

}  // namespace regard::nn
