// SPDX-License-Identifier: Apache-2.0
// Included once for each SIMD target, hence no #pragma once but this guard.
#if defined(REGARD_KERNELS_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_ACTIVATIONS_INL_H_
#undef REGARD_KERNELS_ACTIVATIONS_INL_H_
#else
#define REGARD_KERNELS_ACTIVATIONS_INL_H_
#endif

#include <cstdint>

#include "kernels/activations.h"
#include "kernels/exp2-inl.h"
#include "kernels/vector_ends-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

// exp(x), 0 below about -87; x is at most 0 here.
HWY_INLINE Vec exp_of_negative(Vec x) {
  const Tag d;
  const Exp2Base exp2(hn::Zero(d));
  return exp2(hn::Mul(x, hn::Set(d, 1.44269504089f)));
}

// 1 / (1 + exp(-x)), from exp of a negative number on both sides.
HWY_INLINE Vec sigmoid(Vec x) {
  const Tag d;
  const Vec one = hn::Set(d, 1.0f);
  const Vec e = exp_of_negative(hn::Neg(hn::Abs(x)));
  const Vec small = hn::Div(e, hn::Add(one, e));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), small, hn::Sub(one, small));
}

// The error function: an odd polynomial up to 1, and 1 - 2^-p(x) beyond, each
// within 2e-7 of the truth. NaN stays NaN.
HWY_INLINE Vec erf(Vec x) {
  const Tag d;
  const Vec a = hn::Abs(x);
  const Vec z = hn::Mul(x, x);
  Vec p = hn::Set(d, -9.67359028e-06f);
  p = hn::MulAdd(p, z, hn::Set(d, 0.000112682537f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.000848439639f));
  p = hn::MulAdd(p, z, hn::Set(d, 0.00522105349f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.0268654376f));
  p = hn::MulAdd(p, z, hn::Set(d, 0.112837829f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.376126379f));
  p = hn::MulAdd(p, z, hn::Set(d, 1.12837923f));
  const Vec near = hn::Mul(p, x);
  const Vec b = hn::Min(a, hn::Set(d, 4.0f));
  Vec q = hn::Set(d, 9.49705594e-08f);
  q = hn::MulAdd(q, b, hn::Set(d, -4.46543618e-06f));
  q = hn::MulAdd(q, b, hn::Set(d, 8.66609553e-05f));
  q = hn::MulAdd(q, b, hn::Set(d, -0.000971420726f));
  q = hn::MulAdd(q, b, hn::Set(d, 0.0072438363f));
  q = hn::MulAdd(q, b, hn::Set(d, -0.0389520414f));
  q = hn::MulAdd(q, b, hn::Set(d, 0.160005584f));
  q = hn::MulAdd(q, b, hn::Set(d, 0.910468757f));
  q = hn::MulAdd(q, b, hn::Set(d, 1.63111746f));
  q = hn::MulAdd(q, b, hn::Set(d, -0.000577800092f));
  const Exp2Base exp2(hn::Zero(d));
  const Vec one = hn::Set(d, 1.0f);
  const Vec far = hn::CopySign(hn::Sub(one, exp2(hn::Neg(q))), x);
  const Vec y = hn::IfThenElse(hn::Lt(a, one), near, far);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// Phi(x), the share of a normal distribution below x.
HWY_INLINE Vec normal_share(Vec x) {
  const Tag d;
  const Vec half = hn::Set(d, 0.5f);
  return hn::MulAdd(half, erf(hn::Mul(x, hn::Set(d, 0.70710678f))), half);
}

// tanh(sqrt(2 / pi) (x + 0.044715 x^3))
HWY_INLINE Vec gelu_tanh_part(Vec x) {
  const Tag d;
  const Vec z = hn::Mul(x, x);
  const Vec cubic = hn::MulAdd(hn::Set(d, 0.044715f * 0.79788456f), z,
                               hn::Set(d, 0.79788456f));
  return tanh(hn::Mul(cubic, x));
}

template <Activation kF>
HWY_INLINE Vec activation(Vec x) {
  const Tag d;
  if constexpr (kF == Activation::kRelu) {
    return hn::Max(hn::Zero(d), x);  // in this order a NaN stays on x86, too
  } else if constexpr (kF == Activation::kGelu) {
    return hn::Mul(x, normal_share(x));
  } else if constexpr (kF == Activation::kGeluTanh) {
    const Vec half = hn::Mul(x, hn::Set(d, 0.5f));
    return hn::MulAdd(half, gelu_tanh_part(x), half);
  } else {
    return hn::Mul(x, sigmoid(x));
  }
}

// d f(x) / d x
template <Activation kF>
HWY_INLINE Vec activation_slope(Vec x) {
  const Tag d;
  const Vec one = hn::Set(d, 1.0f);
  if constexpr (kF == Activation::kRelu) {
    return hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), one);
  } else if constexpr (kF == Activation::kGelu) {
    // Phi(x) + x phi(x), phi(x) = exp(-x^2 / 2) / sqrt(2 pi)
    const Vec e = exp_of_negative(hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f)));
    const Vec density = hn::Mul(e, hn::Set(d, 0.39894228f));
    return hn::MulAdd(x, density, normal_share(x));
  } else if constexpr (kF == Activation::kGeluTanh) {
    const Vec t = gelu_tanh_part(x);
    const Vec half = hn::Set(d, 0.5f);
    const Vec inner = hn::MulAdd(hn::Set(d, 3.0f * 0.044715f * 0.79788456f),
                                 hn::Mul(x, x), hn::Set(d, 0.79788456f));
    const Vec slope = hn::Mul(hn::NegMulAdd(t, t, one), inner);
    return hn::Mul(half, hn::MulAdd(x, slope, hn::Add(one, t)));
  } else {
    // s + x s (1 - s)
    const Vec s = sigmoid(x);
    return hn::MulAdd(hn::Mul(x, s), hn::Sub(one, s), s);
  }
}

template <Activation kF>
HWY_INLINE void activate_all(const float* x, std::int64_t n, float* y) {
  over_vectors(n, [&](std::int64_t i, std::int64_t left) HWY_ATTR {
    store_left(activation<kF>(load_left(x + i, left)), y + i, left);
  });
}

template <Activation kF>
HWY_INLINE void activate_backward_all(const float* x, const float* d_y,
                                      std::int64_t n, float* d_x) {
  over_vectors(n, [&](std::int64_t i, std::int64_t left) HWY_ATTR {
    const Vec slope = activation_slope<kF>(load_left(x + i, left));
    store_left(hn::Mul(load_left(d_y + i, left), slope), d_x + i, left);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
