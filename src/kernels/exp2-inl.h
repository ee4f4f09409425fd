// SPDX-License-Identifier: Apache-2.0
// Included once for each SIMD target, hence no #pragma once but this guard.
#if defined(REGARD_KERNELS_EXP2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_EXP2_INL_H_
#undef REGARD_KERNELS_EXP2_INL_H_
#else
#define REGARD_KERNELS_EXP2_INL_H_
#endif

#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;

// Adding and subtracting 1.5 * 2^23 rounds to the nearest integer, ties to
// even.
inline constexpr float kRound = 12582912.0f;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// 2 * 2^f for |f| <= 1/2: minimax of degree 5, relative error 2^-23.7. Twice
// the power, so that the factor that goes with it can reach zero: see Exp2Base.
HWY_INLINE Vec twice_exp2_fraction(Vec f) {
  const Tag d;
  Vec p = hn::Set(d, 2 * 0.001326472731307149f);
  p = hn::MulAdd(p, f, hn::Set(d, 2 * 0.009671512991189957f));
  p = hn::MulAdd(p, f, hn::Set(d, 2 * 0.05550733581185341f));
  p = hn::MulAdd(p, f, hn::Set(d, 2 * 0.24022242426872253f));
  p = hn::MulAdd(p, f, hn::Set(d, 2 * 0.6931470036506653f));
  return hn::MulAdd(p, f, hn::Set(d, 2.0f));
}

// The maximum m of a row, rounded to a multiple of 8. Weights are 2^(score -
// m), so every rescale is an exact power of two and most blocks need none; a
// multiple of 2 also makes ties round alike below, whatever m is.
HWY_INLINE Vec round_max(Vec m) {
  const Vec magic = hn::Set(Tag(), 8 * kRound);
  return hn::Sub(hn::Add(m, magic), magic);
}

// exp2(s - m) for one m a lane. Exact zero for s <= m - 126, and for s = -inf;
// NaN stays NaN. With n = round(s) and f = s - n, which is exact, the result is
// 2^f * 2^(n - m), so its bits depend on s but for the exact factor 2^-m.
class Exp2Base {
 public:
  // A row that has seen nothing yet has m = -inf: any finite m gives zeros.
  HWY_INLINE explicit Exp2Base(Vec m) {
    const Tag d;
    m_ = hn::IfThenElse(hn::Eq(m, hn::Set(d, -kInfinity)), hn::Zero(d), m);
    // 126, not 127: the other half of the exponent's offset is in twice_exp2.
    // c is even, so t below is even exactly when n is.
    c_ = hn::Sub(hn::Set(d, kRound + 126.0f), m_);
    low_ = hn::Sub(m_, hn::Set(d, 126.0f));
    // Beyond this c is not an exact integer.
    small_ = hn::AllTrue(d, hn::Lt(hn::Abs(m_), hn::Set(d, 4194000.0f)));
  }

  bool small() const { return small_; }

  // Where small() holds.
  HWY_INLINE Vec operator()(Vec s) const {
    const Tag d;
    const hn::RebindToUnsigned<Tag> du;
    s = hn::Max(low_, s);  // in this order a NaN stays on x86, too
    const Vec t = hn::Add(s, c_);
    const Vec f = hn::Sub(s, hn::Sub(t, c_));
    const Vec factor = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, t)));
    return hn::Mul(twice_exp2_fraction(f), factor);
  }

  // The same bits, for any m.
  HWY_INLINE Vec any(Vec s) const {
    const Tag d;
    const hn::RebindToUnsigned<Tag> du;
    s = hn::Max(hn::Set(d, std::numeric_limits<float>::lowest()), s);
    const Vec n = hn::Round(s);
    const Vec f = hn::Sub(s, n);
    const Vec e = hn::Max(hn::Sub(n, m_), hn::Set(d, -126.0f));
    const Vec t = hn::Add(e, hn::Set(d, kRound + 126.0f));
    const Vec factor = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, t)));
    return hn::Mul(twice_exp2_fraction(f), factor);
  }

 private:
  Vec m_, c_, low_;
  bool small_;
};

// 2^(a - b) for a <= b, both multiples of 8 or infinite; 1 where they are
// equal.
HWY_INLINE Vec rescale_factor(Vec a, Vec b) {
  const Tag d;
  const hn::RebindToUnsigned<Tag> du;
  const Vec e = hn::Max(hn::Set(d, -127.0f), hn::Sub(a, b));
  const Vec t = hn::Add(e, hn::Set(d, kRound + 127.0f));
  const Vec power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, t)));
  return hn::IfThenElse(hn::Eq(a, b), hn::Set(d, 1.0f), power);
}

// tanh: an odd polynomial near zero, where 1 - 2 / (e^2x + 1) would cancel.
HWY_INLINE Vec tanh(Vec x) {
  const Tag d;
  const Vec z = hn::Mul(x, x);
  Vec p = hn::Set(d, -5.70498872745e-3f);
  p = hn::MulAdd(p, z, hn::Set(d, 2.06390887954e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, -5.37397155531e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, 1.33314422036e-1f));
  p = hn::MulAdd(p, z, hn::Set(d, -3.33332819422e-1f));
  const Vec near_zero = hn::MulAdd(hn::Mul(p, z), x, x);
  const Vec a = hn::Abs(x);
  // 2^(-2 log2(e) |x|), at most 0.29 where it is used
  const Exp2Base exp2(hn::Zero(d));
  const Vec e = exp2(hn::Mul(a, hn::Set(d, -2.885390081777927f)));
  const Vec one = hn::Set(d, 1.0f);
  const Vec far = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
  return hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.625f)), near_zero, far);
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
