// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "regard/tensor/tensor.h"
#include "regard/tensor/tensor_view.h"

namespace regard::view {

// One layer of [layers, heads, rows, columns].
inline TensorView<const float, 3> layer_part(const Tensor& all,
                                             std::int64_t layer) {
  const auto view = all.view<float, 4>();
  return {view.at(layer), {view.extent(1), view.extent(2), view.extent(3)}};
}

}  // namespace regard::view
