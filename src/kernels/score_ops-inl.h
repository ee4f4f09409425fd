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

#include <limits>

#include "kernels/attention_forward.h"
#include "kernels/exp2-inl.h"
#include "kernels/log2.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE Vec hidden_score() { return hn::Set(Tag(), -kInfinity); }

HWY_INLINE Vec hide_unless(hn::Mask<Tag> seen, Vec score) {
  return hn::IfThenElse(seen, score, hidden_score());
}

// cap * tanh(score / cap). `cap` 0 stands for none and must not be asked.
class Softcap {
 public:
  HWY_INLINE explicit Softcap(float cap)
      : in_(cap == 0 ? 0 : inverse(cap)), out_(cap * kLog2E) {}

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
  // Finite, however small the cap: a score of 0 times infinity would be NaN.
  static HWY_INLINE float inverse(float cap) {
    return HWY_MIN(static_cast<float>(kLn2) / cap,
                   std::numeric_limits<float>::max());
  }

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

// All of them in this order, whatever lanes run over. To add something that
// changes scores: a member of ScoreOptions, and a line here.
class ScoreModifier {
 public:
  HWY_INLINE explicit ScoreModifier(const ScoreOptions& options)
      : options_(options), softcap_(options.softcap) {}

  // bias() is asked where there is one; `slope` as in add_alibi. The softcap's
  // derivative, where there is one, goes to cap_slopes unless that is null.
  template <typename Bias>
  HWY_INLINE Vec operator()(Vec score, const Bias& bias, Vec slope,
                            Vec query_position, Vec key_position,
                            float* cap_slopes = nullptr) const {
    if (options_.softcap != 0) {
      const Vec t = softcap_.tangent(score);
      score = softcap_.score(t);
      if (cap_slopes != nullptr)
        hn::Store(Softcap::slope(t), Tag(), cap_slopes);
    }
    if (options_.has_bias) score = add_bias(score, bias());
    if (options_.has_alibi) {
      score = add_alibi(score, slope, query_position, key_position);
    }
    return score;
  }

  // The derivative of a score by its product; only where that is not 1.
  HWY_INLINE Vec slope(Vec product) const {
    return Softcap::slope(softcap_.tangent(product));
  }

 private:
  const ScoreOptions options_;
  const Softcap softcap_;
};

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
