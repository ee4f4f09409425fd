// SPDX-License-Identifier: Apache-2.0
#include "nn/appended_key.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/scalar_score.h"

namespace regard::nn::detail {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// In double, because a plain chain in float would be less exact than the scores
// of the other keys for nothing: this is one key of many.
double dot(const float* a, const float* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

double score_of(const AppendedKey& a, const float* q, std::int64_t head,
                const float* key) {
  const std::int64_t n = a.q.extent(3);
  double score = dot(q, key, n);
  if (a.score == Score::kCosine) {
    const double lengths =
        std::sqrt(dot(q, q, n)) * std::sqrt(dot(key, key, n));
    score = lengths == 0 ? 0 : score / lengths;
  }
  score *= a.scale;
  if (!a.head_scales.empty()) score *= double{a.head_scales[head]};
  return regard::detail::softcapped<double>(score, a.softcap);
}

bool is_dropped(const AppendedKey& a, std::int64_t batch, std::int64_t head,
                std::int64_t query) {
  return regard::detail::is_dropped(a.dropout, {batch, head, query, a.index});
}

void merge_row(const AppendedKey& a, std::int64_t batch, std::int64_t head,
               std::int64_t query, float* out, float& log_sum_exp,
               float& weight) {
  const std::int64_t kv_head = head / (a.q.extent(1) / a.key.extent(0));
  const double score =
      score_of(a, a.q.at(batch, head, query), head, a.key.at(kv_head));
  const double before = log_sum_exp;
  // A NaN on either side must win, so it may not lose a comparison.
  const double max =
      !(score > before) ? (score == score ? before : score) : score;
  if (max == kNothing) {
    weight = 0.0f;
    return;
  }
  const double others = std::exp(before - max);
  const double own = std::exp(score - max);
  const double sum = others + own;
  log_sum_exp = static_cast<float>(max + std::log(sum));
  weight = static_cast<float>(own / sum);

  // out = (1 - weight) out + weight value, where what has no weight is not
  // there: 0 * Inf would be NaN.
  const std::int64_t n = a.value.extent(1);
  const auto rest = static_cast<float>(others / sum);
  for (std::int64_t i = 0; i < n; ++i) out[i] = rest == 0 ? 0 : rest * out[i];
  float kept = weight;
  if (a.dropout.rate > 0) {
    kept = is_dropped(a, batch, head, query) ? 0 : kept / (1 - a.dropout.rate);
  }
  if (kept == 0) return;
  const float* const value = a.value.at(kv_head);
  for (std::int64_t i = 0; i < n; ++i) out[i] += kept * value[i];
}

// What append_key_backward sums in double over all rows of a key-value head.
struct KeySums {
  std::vector<double> key, value;
};

// One row: ds = p (dp - delta), with p and delta of the whole softmax.
void backward_row(const AppendedKey& a, const AppendedKeyGradients& g,
                  std::array<std::int64_t, 3> at, KeySums& sums,
                  double& d_head_scale) {
  const auto [batch, head, query] = at;
  const double p = g.weight(batch, head, query);
  if (p == 0) return;
  const std::int64_t kv_head = head / (a.q.extent(1) / a.key.extent(0));
  const float* const q = a.q.at(batch, head, query);
  const float* const key = a.key.at(kv_head);
  const float* const d_out = g.d_out.at(batch, head, query);
  const std::int64_t n = a.q.extent(3);
  const std::int64_t n_value = a.value.extent(1);
  double factor = 1;
  if (a.dropout.rate > 0) {
    factor = is_dropped(a, batch, head, query)
                 ? 0
                 : 1 / (1 - double{a.dropout.rate});
  }
  // forward: out += p * factor * value
  for (std::int64_t c = 0; c < n_value; ++c) {
    sums.value[c] += p * factor * d_out[c];
  }
  const double delta = dot(d_out, g.out.at(batch, head, query), n_value);
  double d_score =
      p * (factor * dot(d_out, a.value.at(kv_head), n_value) - delta);
  d_score *= regard::detail::softcap_slope<double>(score_of(a, q, head, key),
                                                   a.softcap);
  // forward: score = scale * (q . key), both of length 1 for cosine scores
  double q_inverse = 1, key_inverse = 1;
  const bool cosine = a.score == Score::kCosine;
  if (cosine) {
    const double q_norm = std::sqrt(dot(q, q, n));
    const double key_norm = std::sqrt(dot(key, key, n));
    if (q_norm == 0 || key_norm == 0) return;
    q_inverse = 1 / q_norm;
    key_inverse = 1 / key_norm;
  }
  const double similarity = dot(q, key, n) * q_inverse * key_inverse;
  d_head_scale += d_score * a.scale * similarity;
  const double head_scale =
      a.head_scales.empty() ? 1.0 : double{a.head_scales[head]};
  const double d = d_score * a.scale * head_scale;
  float* const d_q = g.d_q.at(batch, head, query);
  for (std::int64_t c = 0; c < n; ++c) {
    const double q_unit = q[c] * q_inverse;
    const double key_unit = key[c] * key_inverse;
    const double along = cosine ? similarity : 0;
    d_q[c] += static_cast<float>(d * (key_unit - along * q_unit) * q_inverse);
    sums.key[c] += d * (q_unit - along * key_unit) * key_inverse;
  }
}

}  // namespace

void append_key_backward(const AppendedKey& a, const AppendedKeyGradients& g) {
  const std::int64_t group = a.q.extent(1) / a.key.extent(0);
  for (std::int64_t kv_head = 0; kv_head < a.key.extent(0); ++kv_head) {
    KeySums sums{std::vector<double>(a.key.extent(1)),
                 std::vector<double>(a.value.extent(1))};
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group;
         ++head) {
      double d_head_scale = 0;
      for (std::int64_t batch = 0; batch < a.q.extent(0); ++batch) {
        for (std::int64_t query = 0; query < a.q.extent(2); ++query) {
          backward_row(a, g, {batch, head, query}, sums, d_head_scale);
        }
      }
      if (!g.d_head_scales.empty()) {
        g.d_head_scales[head] += static_cast<float>(d_head_scale);
      }
    }
    for (std::size_t c = 0; c < sums.key.size(); ++c) {
      g.d_key.at(kv_head)[c] += static_cast<float>(sums.key[c]);
    }
    for (std::size_t c = 0; c < sums.value.size(); ++c) {
      g.d_value.at(kv_head)[c] += static_cast<float>(sums.value[c]);
    }
  }
}

void append_key(const AppendedKey& appended, TensorView<float, 4> out,
                TensorView<float, 3> log_sum_exp, TensorView<float, 3> weight,
                Threads threads) {
  const std::int64_t heads = out.extent(1);
  parallel_for(threads, out.extent(0) * heads, [&](std::int64_t task) {
    const std::int64_t batch = task / heads;
    const std::int64_t head = task % heads;
    for (std::int64_t query = 0; query < out.extent(2); ++query) {
      merge_row(appended, batch, head, query, out.at(batch, head, query),
                log_sum_exp(batch, head, query), weight(batch, head, query));
    }
  });
}

}  // namespace regard::nn::detail
