// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "regard/core/threads.h"
#include "regard/tensor/tensor.h"
#include "regard/tensor/tensor_view.h"

namespace regard::nn::detail {

// A weight [out, in], or some rows of one, in the panels that kernels::gemm
// reads: [ceil(out / 16) * 16 * in], to be used with the same `out` and `in`.
Tensor packed_weight(TensorView<const float, 2> weight);

// output = input weight^T + bias, for every row of every batch entry.
struct Product {
  TensorView<const float, 3> input;  // [batch, len, in]
  const Tensor* packed = nullptr;    // of packed_weight
  const float* bias = nullptr;       // [out], or null for none
  TensorView<float, 3> output;       // [batch, len, out], apart from the input
};

// All products in one go, cut into blocks for the threads. The bits of a row
// depend on nothing but the row.
void multiply(std::span<const Product> products, Threads threads);

}  // namespace regard::nn::detail
