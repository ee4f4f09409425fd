// SPDX-License-Identifier: Apache-2.0
#include "ops/activate.h"

#include <algorithm>

#include "kernels/activations.h"

namespace regard::ops {
namespace {

kernels::Activation kernel_of(Activation f) {
  switch (f) {
    case Activation::kGelu:
      return kernels::Activation::kGelu;
    case Activation::kGeluTanh:
    case Activation::kGeglu:
      return kernels::Activation::kGeluTanh;
    case Activation::kSilu:
    case Activation::kSwiglu:
      return kernels::Activation::kSilu;
    default:
      return kernels::Activation::kRelu;
  }
}

// Elements of a gate that are worked on at a time, on the stack.
constexpr std::int64_t kPart = 256;

}  // namespace

void activate(Activation f, const float* x, std::int64_t n, float* y) {
  if (f != Activation::kNone) kernels::activate(kernel_of(f), x, n, y);
}

void activate_gated(Activation f, const float* gate, const float* up,
                    std::int64_t n, float* y) {
  if (f == Activation::kSwiglu) {
    kernels::swiglu(gate, up, n, y);
    return;
  }
  for (std::int64_t begin = 0; begin < n; begin += kPart) {
    const std::int64_t count = std::min(kPart, n - begin);
    float open[kPart];
    activate(f, gate + begin, count, open);
    for (std::int64_t i = 0; i < count; ++i) {
      y[begin + i] = open[i] * up[begin + i];
    }
  }
}

void activate_backward(Activation f, const float* x, const float* d_y,
                       std::int64_t n, float* d_x) {
  if (f == Activation::kNone) {
    if (d_x != d_y) std::copy_n(d_y, n, d_x);
    return;
  }
  kernels::activate_backward(kernel_of(f), x, d_y, n, d_x);
}

void activate_gated_backward(Activation f, const float* gate, const float* up,
                             const float* d_y, std::int64_t n, float* d_gate,
                             float* d_up) {
  if (f == Activation::kSwiglu) {
    kernels::swiglu_backward({gate, up, d_y, d_gate, d_up}, n);
    return;
  }
  for (std::int64_t begin = 0; begin < n; begin += kPart) {
    const std::int64_t count = std::min(kPart, n - begin);
    float open[kPart], d_open[kPart];
    activate(f, gate + begin, count, open);
    for (std::int64_t i = 0; i < count; ++i) {  // forward: y = f(gate) * up
      d_open[i] = d_y[begin + i] * up[begin + i];
      d_up[begin + i] = d_y[begin + i] * open[i];
    }
    activate_backward(f, gate + begin, d_open, count, d_gate + begin);
  }
}

}  // namespace regard::ops
