// SPDX-License-Identifier: Apache-2.0
#include "attention/plain.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "regard/core/aligned_buffer.h"
#include "regard/core/random.h"

namespace regard::detail {
namespace {

template <typename T>
struct RowContext {
  const Problem<T>& problem;
  const BoundMask& mask;
  Entry entry;
  std::int64_t index, head, query;

  bool visible(std::int64_t key) const {
    for (const DensePart& part : mask.dense()) {
      if (part.row(index, head, query)[key] != part.visible_when) return false;
    }
    return true;
  }
};

template <typename T>
RealOf<T> dot(const T* a, const T* b, std::int64_t n) {
  RealOf<T> sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    sum += static_cast<RealOf<T>>(a[i]) * static_cast<RealOf<T>>(b[i]);
  }
  return sum;
}

// The score of one pair, everything but the sink applied.
template <typename T>
RealOf<T> score_pair(const RowContext<T>& row, const T* q, const T* k,
                     std::int64_t key) {
  using Real = RealOf<T>;
  const Problem<T>& p = row.problem;
  Real score = dot(q, k, p.d_k);
  if (p.options.score == Score::kCosine) {
    const Real norm = std::sqrt(dot(q, q, p.d_k)) * std::sqrt(dot(k, k, p.d_k));
    score = norm == 0 ? Real{0} : score / norm;
  }
  score *= p.head_scale(row.head);
  if (const Real* bias = p.bias_row(row.index, row.head, row.query)) {
    score += bias[key * p.bias_key_stride()];
    if (score == -std::numeric_limits<Real>::infinity()) return score;
  }
  if (!p.options.alibi_slopes.empty()) {
    const std::int64_t position =
        row.query + row.entry.kv_len - row.entry.q_len;
    score -= p.options.alibi_slopes[row.head] *
             static_cast<Real>(std::abs(position - key));
  }
  if (p.options.softcap > 0) {
    score = p.options.softcap * std::tanh(score / p.options.softcap);
  }
  return score;
}

// weights[0, kv_len) <- the softmax of the row, 0 where hidden. Returns the
// log-sum-exp.
template <typename T>
RealOf<T> row_weights(const RowContext<T>& row, RealOf<T>* weights) {
  using Real = RealOf<T>;
  constexpr Real kHidden = -std::numeric_limits<Real>::infinity();
  const Problem<T>& p = row.problem;
  const Entry& e = row.entry;
  const KeyRange range = row.mask.range(row.index, row.head, row.query);
  const T* q = p.q.at(e.batch, row.head, e.q_begin + row.query);
  const std::int64_t kv_head = row.head / p.group;

  std::fill(weights, weights + e.kv_len, kHidden);
  Real max = p.options.sinks.empty() ? kHidden : p.options.sinks[row.head];
  for (std::int64_t key = range.begin; key < range.end; ++key) {
    if (!row.visible(key)) continue;
    weights[key] =
        score_pair(row, q, p.k.at(e.batch, kv_head, e.kv_begin + key), key);
    // Not std::max: a NaN must stay, to reach the whole row.
    if (!(weights[key] <= max)) max = weights[key];
  }
  if (max == kHidden) {
    std::fill(weights, weights + e.kv_len, Real{0});
    return kHidden;
  }
  Real sum = 0;
  for (std::int64_t key = 0; key < e.kv_len; ++key) {
    weights[key] =
        weights[key] == kHidden ? Real{0} : std::exp(weights[key] - max);
    sum += weights[key];
  }
  if (!p.options.sinks.empty())
    sum += std::exp(p.options.sinks[row.head] - max);
  for (std::int64_t key = 0; key < e.kv_len; ++key) {
    if (weights[key] != 0) weights[key] /= sum;  // sum may be NaN
  }
  return max + std::log(sum);
}

template <typename T>
void drop_weights(const RowContext<T>& row, RealOf<T>* weights) {
  const Dropout& dropout = row.problem.options.dropout;
  const std::uint32_t threshold = dropout_threshold(dropout.rate);
  const auto keep = RealOf<T>{1} / (RealOf<T>{1} - dropout.rate);
  const auto word = [](std::int64_t n) {
    return static_cast<std::uint32_t>(n);
  };
  for (std::int64_t key = 0; key < row.entry.kv_len; ++key) {
    const PhiloxCounter words = philox(
        {word(key / 4), word(row.query), word(row.head), word(row.index)},
        dropout.seed);
    weights[key] = words[key % 4] < threshold ? 0 : weights[key] * keep;
  }
}

}  // namespace

template <typename T>
void plain_forward(const Problem<T>& p, TensorView<T, 4> out) {
  using Real = RealOf<T>;
  const auto run_row = [&](const RowContext<T>& row) {
    const Entry& e = row.entry;
    auto* weights = reinterpret_cast<Real*>(thread_scratch(
        static_cast<std::size_t>(e.kv_len + p.d_v) * sizeof(Real)));
    Real* sums = weights + e.kv_len;
    const Real lse = row_weights(row, weights);
    if (!p.options.log_sum_exp.is_null()) {
      p.options.log_sum_exp(e.batch, row.head, e.q_begin + row.query) = lse;
    }
    if (p.options.dropout.rate > 0) drop_weights(row, weights);
    std::fill(sums, sums + p.d_v, Real{0});
    for (std::int64_t key = 0; key < e.kv_len; ++key) {
      if (weights[key] == 0) continue;  // a hidden Inf must not make a NaN
      const T* v = p.v.at(e.batch, row.head / p.group, e.kv_begin + key);
      for (std::int64_t c = 0; c < p.d_v; ++c) {
        sums[c] += weights[key] * static_cast<Real>(v[c]);
      }
    }
    T* to = out.at(e.batch, row.head, e.q_begin + row.query);
    for (std::int64_t c = 0; c < p.d_v; ++c) to[c] = static_cast<T>(sums[c]);
  };
  for (std::int64_t index = 0; index < p.entries; ++index) {
    const Entry entry = p.entry(index);
    const BoundMask mask(p.options.mask, p.mask_sizes(index), p.where);
    parallel_for(
        p.options.threads, p.heads * entry.q_len, [&](std::int64_t task) {
          run_row(
              {p, mask, entry, index, task / entry.q_len, task % entry.q_len});
        });
  }
}

template <typename T>
void plain_weights(const Problem<T>& p, const PlainRow& row,
                   RealOf<T>* weights) {
  row_weights<T>(
      {p, row.mask, p.entry(row.index), row.index, row.head, row.query},
      weights);
}

template void plain_forward(const Problem<double>&, TensorView<double, 4>);
template void plain_forward(const Problem<float>&, TensorView<float, 4>);
template void plain_forward(const Problem<BFloat16>&, TensorView<BFloat16, 4>);
template void plain_forward(const Problem<Float16>&, TensorView<Float16, 4>);
template void plain_weights(const Problem<double>&, const PlainRow&, double*);
template void plain_weights(const Problem<float>&, const PlainRow&, float*);
template void plain_weights(const Problem<BFloat16>&, const PlainRow&, float*);
template void plain_weights(const Problem<Float16>&, const PlainRow&, float*);

}  // namespace regard::detail
