// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy.cc"
#include "hwy/foreach_target.h"
// The line above includes this file again, once for each target.
#include "kernels/exp2-inl.h"
#include "kernels/log2.h"
#include "kernels/vector_ends-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

constexpr int kChainVecs = static_cast<int>(16 / kEndLanes);

// The sixteen chains of a sum, added in index order. In double, because their
// number does not shrink with n.
HWY_INLINE double sum_of_chains(const EndVec* chains) {
  HWY_ALIGN float all[16];
  for (int v = 0; v < kChainVecs; ++v) {
    hn::Store(chains[v], EndTag(), all + v * kEndLanes);
  }
  double sum = 0;
  for (const float chain : all) sum += static_cast<double>(chain);
  return sum;
}

// Calls body(index, chain vector, elements left) for all of a row.
template <typename Body>
HWY_INLINE void over_chains(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    HWY_UNROLL(4)
    for (int v = 0; v < kChainVecs; ++v) {
      body(i + v * kEndLanes, v, kEndLanes);
    }
  }
  for (int v = 0; i < n; ++v, i += kEndLanes) body(i, v, n - i);
}

// NaN is larger than all.
HWY_INLINE EndVec nan_max(EndVec a, EndVec b) {
  return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::IsNaN(b)), b, a);
}

// Elements left out are -inf.
HWY_INLINE EndVec load_or_low(const float* from, std::int64_t left) {
  const EndTag d;
  const EndVec v = load_left(from, left);
  if (HWY_LIKELY(left >= kEndLanes)) return v;
  return hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(left)), v,
                        hn::Set(d, -kInfinity));
}

HWY_INLINE float largest(const float* scores, std::int64_t n) {
  const EndTag d;
  EndVec most[4];
  for (EndVec& m : most) m = hn::Set(d, -kInfinity);
  std::int64_t i = 0;
  for (; i + 4 * kEndLanes <= n; i += 4 * kEndLanes) {
    HWY_UNROLL(4)
    for (int v = 0; v < 4; ++v) {
      most[v] = nan_max(most[v], hn::LoadU(d, scores + i + v * kEndLanes));
    }
  }
  for (; i < n; i += kEndLanes) {
    most[0] = nan_max(most[0], load_or_low(scores + i, n - i));
  }
  for (int v = 1; v < 4; ++v) most[0] = nan_max(most[0], most[v]);
  HWY_ALIGN float all[kEndLanes];
  hn::Store(most[0], d, all);
  float result = all[0];
  for (const float value : all) {
    if (value > result || std::isnan(value)) result = value;
  }
  return result;
}

// The weights 2^(score log2(e) - max) of a row, their sum and that of the
// scores.
struct Softmax {
  float max = 0;  // of the scores in log2, rounded to a multiple of 8
  double sum = 0;
  double scores = 0;

  double log_sum() const {
    return static_cast<double>(max) * kLn2 + std::log(sum);
  }
};

// Writes the weights to `weights` if that is not null; it may be scores.
template <bool kWrite>
HWY_INLINE Softmax softmax(const float* scores, std::int64_t n,
                           float* weights) {
  const Tag d;
  const Vec log2e = hn::Set(d, kLog2E);
  const Vec max = round_max(hn::Mul(hn::Set(d, largest(scores, n)), log2e));
  const Exp2Base exp2(max);
  const bool small = exp2.small();
  EndVec sums[kChainVecs], plain[kChainVecs];
  for (int v = 0; v < kChainVecs; ++v) sums[v] = plain[v] = hn::Zero(d);
  over_chains(n, [&](std::int64_t i, int v, std::int64_t left) HWY_ATTR {
    const Vec x = load_left(scores + i, left);
    plain[v] = hn::Add(plain[v], x);
    const Vec s = hn::Mul(x, log2e);
    Vec e = HWY_LIKELY(small) ? exp2(s) : exp2.any(s);
    if (left < kEndLanes) {
      e = hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(left)), e);
    }
    sums[v] = hn::Add(sums[v], e);
    if constexpr (kWrite) store_left(e, weights + i, left);
  });
  return {hn::GetLane(max), sum_of_chains(sums), sum_of_chains(plain)};
}

CrossEntropyRow run_cross_entropy_row(float* scores, std::int64_t n,
                                      std::int64_t target, float smoothing,
                                      WithGradient gradient) {
  const Tag d;
  const double target_score = static_cast<double>(scores[target]);
  const bool write = gradient == WithGradient::kYes;
  const Softmax s = write ? softmax<true>(scores, n, scores)
                          : softmax<false>(scores, n, nullptr);
  const double log_sum = s.log_sum();
  const double share = static_cast<double>(smoothing) / static_cast<double>(n);
  CrossEntropyRow row;
  row.likelihood = log_sum - target_score;
  const double uniform = static_cast<double>(n) * log_sum - s.scores;
  row.loss = (1.0 - static_cast<double>(smoothing)) * row.likelihood;
  if (smoothing != 0.0f) row.loss += share * uniform;
  if (write) {
    const Vec scale = hn::Set(d, static_cast<float>(1.0 / s.sum));
    const Vec other = hn::Set(d, static_cast<float>(-share));
    over_vectors(n, [&](std::int64_t i, std::int64_t left) HWY_ATTR {
      const Vec e = load_left(scores + i, left);
      store_left(hn::MulAdd(e, scale, other), scores + i, left);
    });
    scores[target] -= 1.0f - smoothing;
  }
  return row;
}

float run_log_sum_exp_row(const float* scores, std::int64_t n) {
  return static_cast<float>(softmax<false>(scores, n, nullptr).log_sum());
}

// Puts a score into a list of the largest, sorted, from which the last falls.
HWY_INLINE void insert(float score, std::int32_t place, std::int64_t count,
                       std::int32_t* places, float* values) {
  std::int64_t at = count - 1;
  for (; at > 0 && !(score <= values[at - 1]) && !std::isnan(values[at - 1]);
       --at) {
    values[at] = values[at - 1];
    places[at] = places[at - 1];
  }
  values[at] = score;
  places[at] = place;
}

void run_best_scores(const float* scores, std::int64_t n, std::int64_t k,
                     std::int32_t* places, float* values) {
  const EndTag d;
  std::int64_t i = 0;
  for (; i < k; ++i) {
    insert(scores[i], static_cast<std::int32_t>(i), i + 1, places, values);
  }
  // A vector in which nothing is larger than the last of the list is passed
  // over; the first few hundred apart, nearly all are.
  for (; i < n; i += kEndLanes) {
    const EndVec v = load_or_low(scores + i, n - i);
    const EndVec last = hn::Set(d, values[k - 1]);
    if (HWY_LIKELY(hn::AllTrue(d, hn::Le(v, last)))) continue;
    for (std::int64_t j = i; j < std::min(n, i + kEndLanes); ++j) {
      if (scores[j] <= values[k - 1] || std::isnan(values[k - 1])) continue;
      insert(scores[j], static_cast<std::int32_t>(j), k, places, values);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::kernels {

HWY_EXPORT(run_cross_entropy_row);
HWY_EXPORT(run_log_sum_exp_row);
HWY_EXPORT(run_best_scores);

CrossEntropyRow cross_entropy_row(float* scores, std::int64_t n,
                                  std::int64_t target, float smoothing,
                                  WithGradient gradient) noexcept {
  return HWY_DYNAMIC_DISPATCH(run_cross_entropy_row)(scores, n, target,
                                                     smoothing, gradient);
}

float log_sum_exp_row(const float* scores, std::int64_t n) noexcept {
  return HWY_DYNAMIC_DISPATCH(run_log_sum_exp_row)(scores, n);
}

void best_scores(const float* scores, std::int64_t n, std::int64_t k,
                 std::int32_t* places, float* values) noexcept {
  HWY_DYNAMIC_DISPATCH(run_best_scores)(scores, n, k, places, values);
}

}  // namespace regard::kernels
#endif  // HWY_ONCE
