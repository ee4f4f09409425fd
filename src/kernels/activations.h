// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// What stands between two products, element by element, forward and backward.
namespace regard::kernels {

enum class Activation {
  kRelu,
  kGelu,      // x Phi(x), by the error function
  kGeluTanh,  // its approximation by tanh
  kSilu,      // x / (1 + exp(-x))
};

// y = f(x). y may be x.
void activate(Activation f, const float* x, std::int64_t n, float* y) noexcept;

// d_x = d_y * f'(x). d_x may be d_y or x. For kRelu, x may be what activate
// wrote: it is positive at the same places.
void activate_backward(Activation f, const float* x, const float* d_y,
                       std::int64_t n, float* d_x) noexcept;

// y = silu(a) * b
void swiglu(const float* a, const float* b, std::int64_t n, float* y) noexcept;

// The gradients of both; d_a may be a, d_b may be b.
struct SwigluBackward {
  const float* a = nullptr;
  const float* b = nullptr;
  const float* d_y = nullptr;
  float* d_a = nullptr;
  float* d_b = nullptr;
};
void swiglu_backward(const SwigluBackward& job, std::int64_t n) noexcept;

}  // namespace regard::kernels
