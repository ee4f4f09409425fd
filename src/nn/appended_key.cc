// SPDX-License-Identifier: Apache-2.0
#include "nn/appended_key.h"

#include <cmath>
#include <limits>

#include "attention/problem.h"
#include "regard/core/random.h"

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
  if (a.softcap > 0) score = a.softcap * std::tanh(score / a.softcap);
  return score;
}

bool is_dropped(const AppendedKey& a, std::int64_t batch, std::int64_t head,
                std::int64_t query) {
  const PhiloxCounter words = philox(
      {static_cast<std::uint32_t>(a.index / 4),
       static_cast<std::uint32_t>(query), static_cast<std::uint32_t>(head),
       static_cast<std::uint32_t>(batch)},
      a.dropout.seed);
  return words[static_cast<std::size_t>(a.index % 4)] <
         regard::detail::dropout_threshold(a.dropout.rate);
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

}  // namespace

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
