// SPDX-License-Identifier: Apache-2.0
// Attention, transcribed from regard/attention/attention.h one pair at a time
// and sharing nothing with the library. In double it is the truth; in float it
// is the yardstick: what a plain loop loses to rounding.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "support/attention_case.h"
#include "support/philox_reference.h"

namespace regard::test {

template <typename Real>
struct ReferenceResult {
  std::vector<Real> out;      // [rows, heads, q_len, d_v]
  std::vector<Real> lse;      // [rows, heads, q_len]
  std::vector<Real> weights;  // [batch, heads, q_len, kv_len], if not packed
};

// A plain loop may add the products of a score in any order, scale before or
// after, and subtract any number near the largest score. One choice may be
// lucky (with the few scores that matter, or where many weights are exactly 1),
// so the yardstick can be asked for others.
class PlainOrder {
 public:
  // Number 0 is the natural order, every other a shuffle of its own.
  PlainOrder(std::int64_t width, std::uint64_t number)
      : scales_first_(number % 2 == 1),
        above_largest_(static_cast<double>(number % 16) / 16),
        order_(static_cast<std::size_t>(width)) {
    std::iota(order_.begin(), order_.end(), 0);
    Rng rng(number);
    if (number > 0) std::shuffle(order_.begin(), order_.end(), rng);
  }

  template <typename Real>
  Real dot(const double* a, const double* b, Real scale = 1) const {
    Real sum = 0;
    const Real before = scales_first_ ? scale : Real{1};
    for (const std::size_t i : order_) {
      sum += static_cast<Real>(a[i]) * before * static_cast<Real>(b[i]);
    }
    return scales_first_ ? sum : sum * scale;
  }

  // What is subtracted from the scores of a row.
  template <typename Real>
  Real base(Real largest) const {
    return largest + static_cast<Real>(above_largest_);
  }

 private:
  bool scales_first_;
  double above_largest_;
  std::vector<std::size_t> order_;
};

// The score of query i and key j; -inf if the bias hides the pair.
template <typename Real>
Real reference_score(const AttentionCase& c, const AttentionCase::Entry& e,
                     std::int64_t b, std::int64_t h, std::int64_t i,
                     std::int64_t j, const PlainOrder& order) {
  const double* q = c.q.data() + c.query_at(e, h, i, c.d_k);
  const double* k = c.k.data() + c.key_at(e, h, j, c.d_k);
  Real scale = 1;
  if (c.scale) {
    scale = static_cast<Real>(*c.scale);
  } else if (!c.cosine) {
    scale = Real{1} / std::sqrt(static_cast<Real>(c.d_k));
  }
  if (!c.head_scales.empty()) scale *= static_cast<Real>(c.head_scales[h]);
  Real score = order.dot<Real>(q, k, scale);
  if (c.cosine) {
    const Real lengths =
        std::sqrt(order.dot<Real>(q, q)) * std::sqrt(order.dot<Real>(k, k));
    score = lengths == 0 ? Real{0} : score / lengths;
  }
  if (c.softcap > 0) {
    const Real cap = static_cast<Real>(c.softcap);
    score = cap * std::tanh(score / cap);
  }
  if (c.bias) {
    const double bias = c.bias->values[c.bias->place(b, h, i, j)];
    score += static_cast<Real>(bias);
    // -inf hides, but a NaN stays NaN.
    if (bias < -std::numeric_limits<double>::max() && !std::isnan(score)) {
      return -std::numeric_limits<Real>::infinity();
    }
  }
  if (!c.alibi_slopes.empty()) {
    const std::int64_t p = i + e.sizes.kv_len - e.sizes.q_len;
    const std::int64_t distance = p < j ? j - p : p - j;
    score -= static_cast<Real>(c.alibi_slopes[h]) * static_cast<Real>(distance);
  }
  return score;
}

inline bool reference_drops(const AttentionCase& c, std::int64_t b,
                            std::int64_t h, std::int64_t i, std::int64_t j) {
  const double share =
      std::round(static_cast<double>(c.dropout_rate) * 4294967296.0);
  const auto threshold =
      static_cast<std::uint32_t>(share > 4294967295.0 ? 4294967295.0 : share);
  return dropout_word(c.dropout_seed, b, h, i, j) < threshold;
}

// The weights of one row, 0 where nothing is seen, and its log-sum-exp.
template <typename Real>
Real reference_weights(const AttentionCase& c, const AttentionCase::Entry& e,
                       std::int64_t b, std::int64_t h, std::int64_t i,
                       const PlainOrder& order, std::vector<Real>& weights) {
  constexpr Real kNothing = -std::numeric_limits<Real>::infinity();
  constexpr Real kNaN = std::numeric_limits<Real>::quiet_NaN();
  weights.assign(static_cast<std::size_t>(e.sizes.kv_len), kNothing);
  const Real sink = c.sinks.empty() ? kNothing : static_cast<Real>(c.sinks[h]);
  Real max = sink;
  bool broken = false;
  for (std::int64_t j = 0; j < e.sizes.kv_len; ++j) {
    if (!c.mask.visible(e.sizes, b, h, i, j)) continue;
    const Real score = reference_score<Real>(c, e, b, h, i, j, order);
    broken = broken || std::isnan(score) || score == -kNothing;
    weights[j] = score;
    if (score > max) max = score;
  }
  if (broken) {  // inf - inf, as the softmax is defined
    weights.assign(weights.size(), kNaN);
    return kNaN;
  }
  if (max == kNothing) {
    weights.assign(weights.size(), Real{0});
    return kNothing;
  }
  const Real base = order.base(max);
  Real sum = 0;
  for (Real& weight : weights) {
    weight = std::exp(weight - base);
    sum += weight;
  }
  sum += std::exp(sink - base);
  for (Real& weight : weights) weight /= sum;
  return base + std::log(sum);
}

template <typename Real>
ReferenceResult<Real> reference_attention(const AttentionCase& c,
                                          std::uint64_t order_number = 0) {
  const PlainOrder order(c.d_k, order_number);
  ReferenceResult<Real> result;
  result.out.resize(volume(c.out_shape()));
  result.lse.resize(static_cast<std::size_t>(c.rows() * c.heads * c.q_len));
  const Real kept = Real{1} / (Real{1} - static_cast<Real>(c.dropout_rate));
  std::vector<Real> weights;
  for (std::int64_t b = 0; b < c.batch; ++b) {
    const AttentionCase::Entry e = c.entry(b);
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t i = 0; i < e.sizes.q_len; ++i) {
        result.lse[c.query_at(e, h, i, 1)] =
            reference_weights(c, e, b, h, i, order, weights);
        if (!c.is_packed()) {
          result.weights.insert(result.weights.end(), weights.begin(),
                                weights.end());
        }
        Real* out = result.out.data() + c.query_at(e, h, i, c.d_v);
        for (std::int64_t j = 0; j < e.sizes.kv_len; ++j) {
          Real weight = weights[j];
          // A key that has no weight is not there, whatever its value.
          if (weight == 0) continue;
          if (c.dropout_rate > 0) {
            if (reference_drops(c, b, h, i, j)) continue;
            weight *= kept;
          }
          const double* v = c.v.data() + c.key_at(e, h, j, c.d_v);
          for (std::int64_t d = 0; d < c.d_v; ++d) {
            out[d] += weight * static_cast<Real>(v[d]);
          }
        }
      }
    }
  }
  return result;
}

}  // namespace regard::test
