// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// What a convolutional network does beside matrix products. Pictures are
// [height, width, channels], channels contiguous.
namespace regard::kernels {

// Each channel by its own 3 x 3 filter, zeros around the picture, then ReLU6:
// y[i, j] = min(max(bias + the sum of x[i * stride + a - 1, j * stride + b - 1]
// weight[a, b], 0), 6). The sum is one FMA chain from the bias, in the order of
// (a, b).
struct Depthwise {
  std::int64_t height = 0;  // of x
  std::int64_t width = 0;
  std::int64_t channels = 0;
  std::int64_t stride = 1;        // y is [ceil(height / stride), ...]
  const float* x = nullptr;       // [height, width, channels]
  const float* weight = nullptr;  // [3, 3, channels]
  const float* bias = nullptr;    // [channels]
  float* y = nullptr;             // apart from x
};
// One row of y.
void depthwise_row(const Depthwise& job, std::int64_t row) noexcept;

// x = min(max(x, 0), 6)
void relu6(float* x, std::int64_t n) noexcept;

}  // namespace regard::kernels
