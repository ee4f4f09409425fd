// SPDX-License-Identifier: Apache-2.0
// The gradients of attention, transcribed from the derivative one pair at a
// time and sharing nothing with the library. In double it is the truth; in
// float it is the yardstick: what a plain loop loses to rounding.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/attention_case.h"
#include "support/reference_attention.h"

namespace regard::test {

// An attention and the gradient that comes back to it.
struct BackwardCase {
  AttentionCase forward;
  std::vector<double> d_out{};  // [rows, heads, q_len, d_v]
  std::vector<double> d_lse{};  // [rows, heads, q_len], or empty: none
};

inline BackwardCase backward_case(Rng& rng, AttentionCase c,
                                  bool with_d_lse = false) {
  BackwardCase b{.forward = std::move(c)};
  b.d_out = normal_values(rng, volume(b.forward.out_shape()));
  if (with_d_lse) {
    const AttentionCase& f = b.forward;
    b.d_lse = normal_values(
        rng, static_cast<std::size_t>(f.rows() * f.heads * f.q_len));
  }
  return b;
}

// Each shaped like what it is the gradient of, contiguous. Empty where the case
// has no such option.
template <typename Real>
struct ReferenceGradients {
  std::vector<Real> q, k, v, bias, alibi_slopes, sinks, head_scales;
};

// What attention_backward is handed of the forward pass, in the precision it is
// handed over in.
template <typename Real>
struct ForwardGiven {
  std::vector<Real> out;  // [rows, heads, q_len, d_v]
  std::vector<Real> lse;  // [rows, heads, q_len]
};

// One row after the other. With P = exp(score - lse) and f the factor of
// dropout:
//
//   out = sum of P f v          dv += P f d_out
//                               dP  = f (d_out . v)
//   P = softmax(score)          dS  = P (dP - sum of P dP + d_lse)
//   score = cap t + bias - slope distance
//   t = tanh(x / cap)           dx  = dS (1 - t^2)
//   x = scale s
//   s = q . k, or q . k / (|q| |k|)
//
// A pair that is hidden, or weighs nothing, is not there.
template <typename Real>
class ReferenceBackward {
 public:
  // Without `given`, the forward pass is computed here. With it, lse and the
  // sum of P dP, which is d_out . out, come from there.
  explicit ReferenceBackward(const BackwardCase& b,
                             const ForwardGiven<Real>* given = nullptr)
      : b_(b), c_(b.forward), given_(given) {
    result.q.resize(c_.q.size());
    result.k.resize(c_.k.size());
    result.v.resize(c_.v.size());
    result.bias.resize(c_.bias ? c_.bias->values.size() : 0);
    result.alibi_slopes.resize(c_.alibi_slopes.size());
    result.sinks.resize(c_.sinks.size());
    result.head_scales.resize(c_.head_scales.size());
    sizes = result;
    for (std::int64_t b_index = 0; b_index < c_.batch; ++b_index) {
      const AttentionCase::Entry e = c_.entry(b_index);
      for (std::int64_t h = 0; h < c_.heads; ++h) {
        for (std::int64_t i = 0; i < e.sizes.q_len; ++i) {
          run_row(e, b_index, h, i);
        }
      }
    }
  }

  ReferenceGradients<Real> result;
  // The sums of the sizes of the terms that result is the sum of: what its
  // rounding is measured by, because the terms themselves may cancel. A weight
  // exp(x) is known no better than x is, so it counts 1 + |x| times.
  ReferenceGradients<Real> sizes;

 private:
  struct Pair {
    std::int64_t key = 0;
    std::int64_t distance = 0;
    const double *q = nullptr, *k = nullptr;
    Real q_norm = 1, k_norm = 1;  // 1 unless the scores are cosines
    Real tanh = 0;                // of the softcap
    Real similarity = 0, score = 0, weight = 0, factor = 1, d_weight = 0;
  };

  static constexpr Real kNothing = -std::numeric_limits<Real>::infinity();

  static Real dot(const double* a, const double* b, std::int64_t n) {
    Real sum = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      sum += static_cast<Real>(a[i]) * static_cast<Real>(b[i]);
    }
    return sum;
  }

  // Without the head's own.
  Real scale() const {
    if (c_.scale) return static_cast<Real>(*c_.scale);
    return c_.cosine ? Real{1} : Real{1} / std::sqrt(static_cast<Real>(c_.d_k));
  }
  Real head_scale(std::int64_t h) const {
    return c_.head_scales.empty()
               ? scale()
               : scale() * static_cast<Real>(c_.head_scales[h]);
  }

  Pair score(const AttentionCase::Entry& e, const Extents4& at) const {
    const auto [b, h, i, j] = at;
    const std::int64_t p = i + e.sizes.kv_len - e.sizes.q_len;
    Pair pair{.key = j,
              .distance = p < j ? j - p : p - j,
              .q = c_.q.data() + c_.query_at(e, h, i, c_.d_k),
              .k = c_.k.data() + c_.key_at(e, h, j, c_.d_k)};
    pair.similarity = dot(pair.q, pair.k, c_.d_k);
    if (c_.cosine) {
      pair.q_norm = std::sqrt(dot(pair.q, pair.q, c_.d_k));
      pair.k_norm = std::sqrt(dot(pair.k, pair.k, c_.d_k));
      const bool none = pair.q_norm == 0 || pair.k_norm == 0;
      pair.similarity =
          none ? Real{0} : pair.similarity / (pair.q_norm * pair.k_norm);
    }
    pair.score = pair.similarity * head_scale(h);
    if (c_.softcap > 0) {
      const Real cap = static_cast<Real>(c_.softcap);
      pair.tanh = std::tanh(pair.score / cap);
      pair.score = cap * pair.tanh;
    }
    if (c_.bias) {
      const double bias = c_.bias->values[c_.bias->place(b, h, i, j)];
      pair.score += static_cast<Real>(bias);
      if (bias == -HUGE_VAL) pair.score = kNothing;
    }
    if (!c_.alibi_slopes.empty()) {
      pair.score -= static_cast<Real>(c_.alibi_slopes[h]) *
                    static_cast<Real>(pair.distance);
    }
    if (c_.dropout_rate > 0) {
      pair.factor = reference_drops(c_, b, h, i, j)
                        ? Real{0}
                        : 1 / (1 - static_cast<Real>(c_.dropout_rate));
    }
    return pair;
  }

  void run_row(const AttentionCase::Entry& e, std::int64_t b, std::int64_t h,
               std::int64_t i) {
    std::vector<Pair> pairs;
    for (std::int64_t j = 0; j < e.sizes.kv_len; ++j) {
      if (!c_.mask.visible(e.sizes, b, h, i, j)) continue;
      const Pair pair = score(e, {b, h, i, j});
      if (pair.score != kNothing) pairs.push_back(pair);
    }
    const Real sink =
        c_.sinks.empty() ? kNothing : static_cast<Real>(c_.sinks[h]);
    const std::size_t row = c_.query_at(e, h, i, 1);
    const Real lse = given_ ? given_->lse[row] : log_sum_exp(pairs, sink);
    if (lse == kNothing) return;
    const double* d_out = b_.d_out.data() + c_.query_at(e, h, i, c_.d_v);
    Real along = 0;  // sum of P dP
    for (Pair& pair : pairs) {
      pair.weight = std::exp(pair.score - lse);
      if (pair.weight == 0 || pair.factor == 0) continue;
      const double* v = c_.v.data() + c_.key_at(e, h, pair.key, c_.d_v);
      pair.d_weight = pair.factor * dot(d_out, v, c_.d_v);
      along += pair.weight * pair.d_weight;
    }
    if (given_ && !pairs.empty()) along = given_along(row, d_out);
    if (!b_.d_lse.empty()) along -= static_cast<Real>(b_.d_lse[row]);
    for (const Pair& pair : pairs) {
      if (pair.weight == 0) continue;
      const std::size_t v_at = c_.key_at(e, h, pair.key, c_.d_v);
      for (std::int64_t d = 0; d < c_.d_v && pair.factor != 0; ++d) {
        const Real term =
            pair.weight * pair.factor * static_cast<Real>(d_out[d]);
        add(&ReferenceGradients<Real>::v, v_at + d, term,
            term * (1 + std::abs(pair.score)));
      }
      add_score(e, {b, h, i, pair.key}, pair, along);
    }
    if (sink != kNothing) {
      const Real term = -std::exp(sink - lse) * along;
      add(&ReferenceGradients<Real>::sinks, static_cast<std::size_t>(h), term,
          term * (1 + std::abs(sink)));
    }
  }

  static Real log_sum_exp(const std::vector<Pair>& pairs, Real sink) {
    Real max = sink;
    for (const Pair& pair : pairs) {
      if (std::isnan(pair.score) || pair.score == -kNothing) {
        return std::numeric_limits<Real>::quiet_NaN();
      }
      if (pair.score > max) max = pair.score;
    }
    if (max == kNothing) return kNothing;
    Real sum = 0;
    for (const Pair& pair : pairs) sum += std::exp(pair.score - max);
    if (sink != kNothing) sum += std::exp(sink - max);
    return max + std::log(sum);
  }

  Real given_along(std::size_t row, const double* d_out) const {
    Real sum = 0;
    const auto width = static_cast<std::size_t>(c_.d_v);
    for (std::size_t d = 0; d < width; ++d) {
      sum += given_->out[row * width + d] * static_cast<Real>(d_out[d]);
    }
    return sum;
  }

  using Member = std::vector<Real> ReferenceGradients<Real>::*;

  void add(Member to, std::size_t at, Real term, Real size) {
    (result.*to)[at] += term;
    (sizes.*to)[at] += std::abs(size);
  }

  // From the gradient of one score to everything it was made of.
  void add_score(const AttentionCase::Entry& e, const Extents4& at,
                 const Pair& pair, Real along) {
    using Gradients = ReferenceGradients<Real>;
    const auto [b, h, i, j] = at;
    const auto head = static_cast<std::size_t>(h);
    Real d_score = pair.weight * (pair.d_weight - along);
    const Real size = pair.weight * (1 + std::abs(pair.score)) *
                      (std::abs(pair.d_weight) + std::abs(along));
    if (c_.bias) {
      add(&Gradients::bias, c_.bias->place(b, h, i, j), d_score, size);
    }
    if (!c_.alibi_slopes.empty()) {
      const Real distance = static_cast<Real>(pair.distance);
      add(&Gradients::alibi_slopes, head, -d_score * distance, size * distance);
    }
    // What was added, was added after the cap.
    if (c_.softcap > 0) d_score *= 1 - pair.tanh * pair.tanh;
    if (pair.q_norm == 0 || pair.k_norm == 0) return;
    if (!c_.head_scales.empty()) {
      const Real factor = scale() * pair.similarity;
      add(&Gradients::head_scales, head, d_score * factor, size * factor);
    }
    const std::size_t q_at = c_.query_at(e, h, i, c_.d_k);
    const std::size_t k_at = c_.key_at(e, h, j, c_.d_k);
    for (std::int64_t d = 0; d < c_.d_k; ++d) {
      const Real q = static_cast<Real>(pair.q[d]) / pair.q_norm;
      const Real k = static_cast<Real>(pair.k[d]) / pair.k_norm;
      Real to_q = k, to_k = q, q_size = k, k_size = q;
      if (c_.cosine) {
        // d (q . k / (|q| |k|)) / dq = (k / |k| - similarity q / |q|) / |q|
        const Real s = pair.similarity;
        to_q = (k - s * q) / pair.q_norm;
        to_k = (q - s * k) / pair.k_norm;
        q_size = (std::abs(k) + std::abs(s * q)) / pair.q_norm;
        k_size = (std::abs(q) + std::abs(s * k)) / pair.k_norm;
      }
      const Real scale = head_scale(h);
      add(&Gradients::q, q_at + d, d_score * scale * to_q,
          size * scale * q_size);
      add(&Gradients::k, k_at + d, d_score * scale * to_k,
          size * scale * k_size);
    }
  }

  const BackwardCase& b_;
  const AttentionCase& c_;
  const ForwardGiven<Real>* const given_;
};

template <typename Real>
ReferenceGradients<Real> reference_backward(
    const BackwardCase& b, const ForwardGiven<Real>* given = nullptr) {
  return ReferenceBackward<Real>(b, given).result;
}

}  // namespace regard::test
