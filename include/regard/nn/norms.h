// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "regard/core/threads.h"
#include "regard/tensor/tensor_view.h"

namespace regard::nn {

// Norms of rows. The bits of a row depend on the row alone; gradients of weight
// and bias sum the rows in one order, whatever the number of threads.

struct NormOptions {
  float epsilon = 1e-5f;
  // [rows] each: forward writes them if they are given, backward needs them.
  // rms_norm has no mean.
  TensorView<float, 1> mean{};
  TensorView<float, 1> rstd{};
  Threads threads{};
};

// out = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + epsilon), for each row.
//
//   x, out [rows, dim]   out may be x, or lie apart from it
//   weight [dim]         ones if not given
//
// Throws InvalidArgument if the shapes disagree.
void rms_norm(TensorView<const float, 2> x, TensorView<const float, 1> weight,
              TensorView<float, 2> out, const NormOptions& options = {});

// out = (x - mean) * rstd * weight + bias,
// rstd = 1 / sqrt(mean((x - mean)^2) + epsilon); bias [dim], zeros if not given
void layer_norm(TensorView<const float, 2> x, TensorView<const float, 1> weight,
                TensorView<const float, 1> bias, TensorView<float, 2> out,
                const NormOptions& options = {});

// Written where they are given. d_x may be d_out.
struct NormGradients {
  TensorView<float, 2> d_x{};       // [rows, dim]
  TensorView<float, 1> d_weight{};  // [dim]
  TensorView<float, 1> d_bias{};    // [dim], of layer_norm
};

void rms_norm_backward(TensorView<const float, 2> x,
                       TensorView<const float, 1> weight,
                       TensorView<const float, 2> d_out,
                       const NormGradients& gradients,
                       const NormOptions& options);
void layer_norm_backward(TensorView<const float, 2> x,
                         TensorView<const float, 1> weight,
                         TensorView<const float, 2> d_out,
                         const NormGradients& gradients,
                         const NormOptions& options);

}  // namespace regard::nn
