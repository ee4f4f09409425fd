// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "regard/core/threads.h"
#include "regard/tensor/tensor_view.h"

// The linear layer on weights that stand in the caller's memory and may change
// from call to call, as in training. What is called often with the same weights
// is faster with them packed once (MultiHeadAttention, regard/nn/decoding.h).
//
// Each element is a sum in an order of its own: the bits depend on nothing but
// its row and its column. Rows of every matrix are contiguous.
namespace regard::nn {

// y = x weight^T + bias, with x [rows, in], weight [out, in], bias [out] or
// null, y [rows, out] apart from all of them. Throws InvalidArgument where
// shapes do not fit.
void linear_forward(TensorView<const float, 2> x,
                    TensorView<const float, 2> weight,
                    TensorView<const float, 1> bias, TensorView<float, 2> y,
                    Threads threads = {});

// What is null is not wanted.
struct LinearGradients {
  TensorView<float, 2> x{};
  TensorView<float, 2> weight{};
  TensorView<float, 1> bias{};
};

// Writes d_y weight, d_y^T x and the column sums of d_y.
void linear_backward(TensorView<const float, 2> d_y,
                     TensorView<const float, 2> x,
                     TensorView<const float, 2> weight,
                     const LinearGradients& gradients, Threads threads = {});

}  // namespace regard::nn
