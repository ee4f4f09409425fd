// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace regard::kernels {

// One step of Adam (Kingma and Ba, 2015), with decay of the weights either as a
// part of the gradient (Adam) or beside it (AdamW, Loshchilov and Hutter,
// 2019).
//
//   g = gradient_scale * gradient + gradient_decay * value
//   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//   value = value_scale * value - step_size * m / (sqrt(v) * root_scale + eps)
//
// so that with t counted from 1, step_size = rate / (1 - beta1^t), root_scale =
// 1 / sqrt(1 - beta2^t), and value_scale = 1 - rate * decay for AdamW.
struct AdamStep {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float step_size = 0;
  float root_scale = 1;
  float gradient_scale = 1;
  float gradient_decay = 0;
  float value_scale = 1;
};
void adam_step(const AdamStep& step, const float* gradient, std::int64_t n,
               float* value, float* m, float* v) noexcept;

// The sum of squares in one fixed order: in sixteen chains of float over blocks
// of 4096 elements, blocks added in double. For clipping.
double sum_of_squares(const float* x, std::int64_t n) noexcept;

}  // namespace regard::kernels
