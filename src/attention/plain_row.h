// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <type_traits>

#include "attention/problem.h"
#include "attention/scalar_score.h"

namespace regard::detail {

// A row of elements, as numbers of the type that is computed in.
template <typename Real>
class Numbers {
 public:
  template <typename Byte>
  Numbers(const ElementView<Byte>& of, const void* row)
      : row_(row), storage_(of.storage()) {}

  Real operator[](std::int64_t i) const {
    if constexpr (std::is_same_v<Real, double>) {
      return static_cast<const double*>(row_)[i];
    } else {
      return kernels::load_element(row_, storage_, i);
    }
  }

 private:
  const void* row_;
  kernels::Storage storage_;
};

// The row <- n numbers, rounded.
template <typename Real>
void write_numbers(const Real* from, std::int64_t n, const Elements& to,
                   void* row) {
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<Real, double>) {
      static_cast<double*>(row)[i] = from[i];
    } else {
      kernels::store_element(from[i], to.storage(), row, i);
    }
  }
}

template <typename Real>
Real dot(const Numbers<Real>& a, const Numbers<Real>& b, std::int64_t n) {
  Real sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// x * scale * inverse has length 1, or is zero: `scale` is a power of two that
// keeps the squares where they neither over- nor underflow.
template <typename Real>
struct PlainUnit {
  Numbers<Real> x;
  Real scale = 1;
  Real inverse = 0;
  bool is_zero = true;

  PlainUnit(const Numbers<Real>& vector, std::int64_t n) : x(vector) {
    Real largest = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      largest = std::max(largest, std::abs(x[i]));
    }
    if (largest > 0 && std::isfinite(largest)) {
      constexpr int kMost = std::numeric_limits<Real>::max_exponent - 2;
      scale =
          std::ldexp(Real{1}, std::clamp(-std::ilogb(largest), -kMost, kMost));
    }
    Real squares = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const Real element = x[i] * scale;
      squares += element * element;
    }
    is_zero = squares == 0;
    if (!is_zero) inverse = 1 / std::sqrt(squares);
  }

  Real operator[](std::int64_t i) const { return x[i] * scale * inverse; }
};

// One query of one head, by plain loops in Real.
template <typename Real>
struct PlainRow {
  static constexpr Real kHidden = -std::numeric_limits<Real>::infinity();

  const Problem<Real>& p;
  const BoundMask& mask;
  Entry entry;
  std::int64_t index, head, query;

  Numbers<Real> q() const {
    return {p.q, p.q.at(entry.batch, head, entry.q_begin + query)};
  }
  Numbers<Real> k(std::int64_t key) const { return row_of(p.k, key); }
  Numbers<Real> v(std::int64_t key) const { return row_of(p.v, key); }
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
    const PlainUnit<Real> q_unit(q(), p.d_k), k_unit(k(key), p.d_k);
    Real sum = 0;
    for (std::int64_t i = 0; i < p.d_k; ++i) sum += q_unit[i] * k_unit[i];
    return sum;
  }

  Real capped_product(std::int64_t key) const {
    return softcapped(product(key), p.options.softcap);
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
    const Real keep = Real{1} / (Real{1} - dropout.rate);
    for (std::int64_t key = 0; key < entry.kv_len; ++key) {
      weights[key] = is_dropped(dropout, {index, head, query, key})
                         ? 0
                         : weights[key] * keep;
    }
  }

 private:
  Numbers<Real> row_of(const ConstElements& of, std::int64_t key) const {
    return {of, of.at(entry.batch, head / p.group, entry.kv_begin + key)};
  }
  bool visible(std::int64_t key) const {
    for (const DensePart& part : mask.dense()) {
      if (part.row(index, head, query)[key] != part.visible_when) return false;
    }
    return true;
  }
};

}  // namespace regard::detail
