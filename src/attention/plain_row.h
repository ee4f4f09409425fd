// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "attention/problem.h"
#include "regard/core/random.h"

namespace regard::detail {

template <typename T>
RealOf<T> dot(const T* a, const T* b, std::int64_t n) {
  RealOf<T> sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    sum += static_cast<RealOf<T>>(a[i]) * static_cast<RealOf<T>>(b[i]);
  }
  return sum;
}

// x * scale * inverse has length 1, or is zero: `scale` is a power of two that
// keeps the squares where they neither over- nor underflow.
template <typename T>
struct PlainUnit {
  using Real = RealOf<T>;
  const T* x;
  Real scale = 1;
  Real inverse = 0;
  bool is_zero = true;

  PlainUnit(const T* vector, std::int64_t n) : x(vector) {
    Real largest = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      largest = std::max(largest, std::abs(static_cast<Real>(x[i])));
    }
    if (largest > 0 && std::isfinite(largest)) {
      constexpr int kMost = std::numeric_limits<Real>::max_exponent - 2;
      scale =
          std::ldexp(Real{1}, std::clamp(-std::ilogb(largest), -kMost, kMost));
    }
    Real squares = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const Real element = static_cast<Real>(x[i]) * scale;
      squares += element * element;
    }
    is_zero = squares == 0;
    if (!is_zero) inverse = 1 / std::sqrt(squares);
  }

  Real operator[](std::int64_t i) const {
    return static_cast<Real>(x[i]) * scale * inverse;
  }
};

// One query of one head, by plain loops in T's own arithmetic.
template <typename T>
struct PlainRow {
  using Real = RealOf<T>;
  static constexpr Real kHidden = -std::numeric_limits<Real>::infinity();

  const Problem<T>& p;
  const BoundMask& mask;
  Entry entry;
  std::int64_t index, head, query;

  const T* q() const {
    return p.q.at(entry.batch, head, entry.q_begin + query);
  }
  const T* k(std::int64_t key) const {
    return p.k.at(entry.batch, head / p.group, entry.kv_begin + key);
  }
  Real distance(std::int64_t key) const {
    return static_cast<Real>(
        std::abs(query + entry.kv_len - entry.q_len - key));
  }

  // The product of one pair, scaled.
  Real product(std::int64_t key) const {
    return p.head_scale(head) * (p.options.score == Score::kCosine
                                     ? similarity(key)
                                     : dot(q(), k(key), p.d_k));
  }

  // The cosine of the angle between query and key; 0 for a zero vector.
  Real similarity(std::int64_t key) const {
    const PlainUnit<T> q_unit(q(), p.d_k), k_unit(k(key), p.d_k);
    Real sum = 0;
    for (std::int64_t i = 0; i < p.d_k; ++i) sum += q_unit[i] * k_unit[i];
    return sum;
  }

  Real capped_product(std::int64_t key) const {
    const Real cap = p.options.softcap;
    return cap > 0 ? cap * std::tanh(product(key) / cap) : product(key);
  }

  // The score of one pair, everything but the sink applied.
  Real score(std::int64_t key) const {
    Real score = capped_product(key);
    if (const Real* bias = p.bias_row(index, head, query)) {
      score += bias[key * p.bias_key_stride()];
      // -inf in the bias hides, whatever the score was.
      if (bias[key * p.bias_key_stride()] == kHidden) return kHidden;
    }
    if (!p.options.alibi_slopes.empty()) {
      score -= p.options.alibi_slopes[head] * distance(key);
    }
    return score;
  }

  // to[0, kv_len) <- the softmax of the row, 0 where hidden. Returns the
  // log-sum-exp.
  Real weights(Real* to) const {
    const KeyRange range = mask.range(index, head, query);
    std::fill(to, to + entry.kv_len, kHidden);
    Real max = p.options.sinks.empty() ? kHidden : p.options.sinks[head];
    for (std::int64_t key = range.begin; key < range.end; ++key) {
      if (!visible(key)) continue;
      to[key] = score(key);
      // Not std::max: a NaN must stay, to reach the whole row.
      if (to[key] > max || std::isnan(to[key])) max = to[key];
    }
    if (max == kHidden) {
      std::fill(to, to + entry.kv_len, Real{0});
      return kHidden;
    }
    // inf - inf: the whole row is NaN, not only the key that is infinite.
    if (max == -kHidden) max = std::numeric_limits<Real>::quiet_NaN();
    Real sum = 0;
    for (std::int64_t key = 0; key < entry.kv_len; ++key) {
      to[key] = to[key] == kHidden ? Real{0} : std::exp(to[key] - max);
      sum += to[key];
    }
    if (!p.options.sinks.empty()) sum += std::exp(p.options.sinks[head] - max);
    for (std::int64_t key = 0; key < entry.kv_len; ++key) {
      if (to[key] != 0) to[key] /= sum;  // sum may be NaN
    }
    return max + std::log(sum);
  }

  // Dropout of weights[0, kv_len).
  void drop(Real* weights) const {
    const Dropout& dropout = p.options.dropout;
    const std::uint32_t threshold = dropout_threshold(dropout.rate);
    const Real keep = Real{1} / (Real{1} - dropout.rate);
    const auto word = [](std::int64_t n) {
      return static_cast<std::uint32_t>(n);
    };
    for (std::int64_t key = 0; key < entry.kv_len; ++key) {
      const PhiloxCounter words = philox(
          {word(key / 4), word(query), word(head), word(index)}, dropout.seed);
      weights[key] = words[key % 4] < threshold ? 0 : weights[key] * keep;
    }
  }

 private:
  bool visible(std::int64_t key) const {
    for (const DensePart& part : mask.dense()) {
      if (part.row(index, head, query)[key] != part.visible_when) return false;
    }
    return true;
  }
};

}  // namespace regard::detail
