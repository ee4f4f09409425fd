// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/gemm.h"
#include "regard/core/threads.h"
#include "regard/tensor/tensor.h"
#include "regard/tensor/tensor_view.h"

namespace regard::nn::detail {

// A weight [out, in], or some rows of one, in the panels that kernels::gemm
// reads: [ceil(out / 16) * 16 * in], to be used with the same `out` and `in`.
Tensor packed_weight(TensorView<const float, 2> weight);

// The same weight rounded to bf16, as kernels::bf16_gemm reads it. A product
// with it rounds its input to bf16, too.
Tensor packed_bf16_weight(TensorView<const float, 2> weight);

// output = input weight^T + bias, for every row of every batch entry.
struct Product {
  TensorView<const float, 3> input;  // [batch, len, in]
  const Tensor* packed = nullptr;    // of packed_weight or packed_bf16_weight
  const float* bias = nullptr;       // [out], or null for none
  TensorView<float, 3> output;       // [batch, len, out], apart from the input
  // kResult adds to what is there; not in bf16.
  kernels::Start start = kernels::Start::kZero;
};

// All products in one go, cut into blocks for the threads. The bits of a row
// depend on nothing but the row.
void multiply(std::span<const Product> products, Threads threads);

// What multiply() makes of an input has these gradients.

// d_input = d_output weight, added to what is there if `add`.
struct InputGradient {
  TensorView<const float, 3> d_output;  // [batch, len, out]
  TensorView<const float, 2> weight;    // [out, in]
  TensorView<float, 3> d_input;         // [batch, len, in]
  bool add = false;
};
void input_gradient(const InputGradient& gradient, Threads threads);

// d_weight = d_output^T input and d_bias = the sum of d_output's rows, over all
// rows in order, so the bits do not depend on threads. d_bias may be null.
struct WeightGradient {
  TensorView<const float, 3> d_output;  // [batch, len, out]
  TensorView<const float, 3> input;     // [batch, len, in]
  TensorView<float, 2> d_weight;        // [out, in]
  float* d_bias = nullptr;              // [out]
};
void weight_gradient(const WeightGradient& gradient, Threads threads);

}  // namespace regard::nn::detail
