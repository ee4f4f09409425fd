// SPDX-License-Identifier: Apache-2.0
#include "kernels/activations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activations.cc"
#include "hwy/foreach_target.h"
// The line above includes this file again, once for each target.
#include "kernels/activations-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

void run_activate(Activation f, const float* x, std::int64_t n, float* y) {
  switch (f) {
    case Activation::kRelu:
      return activate_all<Activation::kRelu>(x, n, y);
    case Activation::kGelu:
      return activate_all<Activation::kGelu>(x, n, y);
    case Activation::kGeluTanh:
      return activate_all<Activation::kGeluTanh>(x, n, y);
    case Activation::kSilu:
      return activate_all<Activation::kSilu>(x, n, y);
  }
}

void run_activate_backward(Activation f, const float* x, const float* d_y,
                           std::int64_t n, float* d_x) {
  switch (f) {
    case Activation::kRelu:
      return activate_backward_all<Activation::kRelu>(x, d_y, n, d_x);
    case Activation::kGelu:
      return activate_backward_all<Activation::kGelu>(x, d_y, n, d_x);
    case Activation::kGeluTanh:
      return activate_backward_all<Activation::kGeluTanh>(x, d_y, n, d_x);
    case Activation::kSilu:
      return activate_backward_all<Activation::kSilu>(x, d_y, n, d_x);
  }
}

void run_swiglu(const float* a, const float* b, std::int64_t n, float* y) {
  over_vectors(n, [&](std::int64_t i, std::int64_t left) HWY_ATTR {
    const Vec gate = activation<Activation::kSilu>(load_left(a + i, left));
    store_left(hn::Mul(gate, load_left(b + i, left)), y + i, left);
  });
}

void run_swiglu_backward(const SwigluBackward& job, std::int64_t n) {
  over_vectors(n, [&](std::int64_t i, std::int64_t left) HWY_ATTR {
    const Vec a = load_left(job.a + i, left);
    const Vec b = load_left(job.b + i, left);
    const Vec d_y = load_left(job.d_y + i, left);
    const Vec slope = activation_slope<Activation::kSilu>(a);
    const Vec gate = activation<Activation::kSilu>(a);
    store_left(hn::Mul(hn::Mul(d_y, b), slope), job.d_a + i, left);
    store_left(hn::Mul(d_y, gate), job.d_b + i, left);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::kernels {

HWY_EXPORT(run_activate);
HWY_EXPORT(run_activate_backward);
HWY_EXPORT(run_swiglu);
HWY_EXPORT(run_swiglu_backward);

void activate(Activation f, const float* x, std::int64_t n, float* y) noexcept {
  HWY_DYNAMIC_DISPATCH(run_activate)(f, x, n, y);
}

void activate_backward(Activation f, const float* x, const float* d_y,
                       std::int64_t n, float* d_x) noexcept {
  HWY_DYNAMIC_DISPATCH(run_activate_backward)(f, x, d_y, n, d_x);
}

void swiglu(const float* a, const float* b, std::int64_t n, float* y) noexcept {
  HWY_DYNAMIC_DISPATCH(run_swiglu)(a, b, n, y);
}

void swiglu_backward(const SwigluBackward& job, std::int64_t n) noexcept {
  HWY_DYNAMIC_DISPATCH(run_swiglu_backward)(job, n);
}

}  // namespace regard::kernels
#endif  // HWY_ONCE
