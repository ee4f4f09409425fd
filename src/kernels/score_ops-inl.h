// SPDX-License-Identifier: Apache-2.0
// What becomes of a score between the product and the exponential, written once
// for every kernel, whatever its lanes run over. Scores are in log2. The order
// is the contract's: softcap, bias, ALiBi, then hiding.
#if defined(REGARD_KERNELS_SCORE_OPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_SCORE_OPS_INL_H_
#undef REGARD_KERNELS_SCORE_OPS_INL_H_
#else
#define REGARD_KERNELS_SCORE_OPS_INL_H_
#endif

#include "kernels/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.6931471805599453f;

HWY_INLINE Vec hidden_score() { return hn::Set(Tag(), -kInfinity); }

HWY_INLINE Vec hide_unless(hn::Mask<Tag> seen, Vec score) {
  return hn::IfThenElse(seen, score, hidden_score());
}

// cap * tanh(score / cap). `cap` 0 stands for none and must not be asked.
class Softcap {
 public:
  HWY_INLINE explicit Softcap(float cap)
      : in_(cap == 0 ? 0 : kLn2 / cap), out_(cap * kLog2E) {}

  // tanh(score / cap), of which the other two are functions.
  HWY_INLINE Vec tangent(Vec score) const {
    return tanh(hn::Mul(score, hn::Set(Tag(), in_)));
  }
  HWY_INLINE Vec score(Vec tangent) const {
    return hn::Mul(tangent, hn::Set(Tag(), out_));
  }
  // The derivative of the capped score by the score.
  static HWY_INLINE Vec slope(Vec tangent) {
    return hn::NegMulAdd(tangent, tangent, hn::Set(Tag(), 1.0f));
  }

 private:
  float in_, out_;
};

// A bias of -inf hides its pair, whatever the score was, NaN too.
HWY_INLINE Vec add_bias(Vec score, Vec bias) {
  const Vec sum = hn::MulAdd(bias, hn::Set(Tag(), kLog2E), score);
  return hn::IfThenElse(hn::Eq(bias, hidden_score()), hidden_score(), sum);
}

// `slope` is ALiBi's times log2(e).
HWY_INLINE Vec add_alibi(Vec score, Vec slope, Vec query_position,
                         Vec key_position) {
  const Vec distance = hn::Abs(hn::Sub(query_position, key_position));
  return hn::NegMulAdd(slope, distance, score);
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
