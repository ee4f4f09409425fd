// SPDX-License-Identifier: Apache-2.0
// The definition of attention in double, row by row, as plain as it can be
// written. It shares nothing with the library but the storage types.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "bench.h"
#include "regard/core/float16.h"

namespace regard::bench {
namespace {

double element(const AttentionCase& c, const Array& a, std::int64_t b,
               std::int64_t h, std::int64_t i, std::int64_t j) {
  const std::int64_t at =
      b * a.strides[0] + h * a.strides[1] + i * a.strides[2] + j;
  switch (c.type) {
    case ElementType::kFloat32:
      return static_cast<const float*>(a.data)[at];
    case ElementType::kBFloat16:
      return static_cast<float>(static_cast<const BFloat16*>(a.data)[at]);
    case ElementType::kFloat16:
      return static_cast<float>(static_cast<const Float16*>(a.data)[at]);
  }
  return 0.0;
}

// The weights of one row; 0 where the mask hides the key.
std::vector<double> row_weights(const AttentionCase& c, std::int64_t b,
                                std::int64_t h, std::int64_t i) {
  const std::int64_t kv_len = c.k.shape[2], d_k = c.k.shape[3];
  const std::int64_t kv_head = h / (c.q.shape[1] / c.k.shape[1]);
  const auto [begin, end] = visible_keys(c, i);
  const double hidden = -std::numeric_limits<double>::infinity();
  std::vector<double> w(kv_len, hidden);
  double top = hidden;
  for (std::int64_t j = begin; j < end; ++j) {
    if (c.mask == MaskKind::kDense && !c.dense[i * kv_len + j]) continue;
    double dot = 0.0;
    for (std::int64_t e = 0; e < d_k; ++e) {
      dot += element(c, c.q, b, h, i, e) * element(c, c.k, b, kv_head, j, e);
    }
    w[j] = dot / std::sqrt(static_cast<double>(d_k));
    top = std::max(top, w[j]);
  }
  double sum = 0.0;
  for (double& x : w) {
    x = x == hidden ? 0.0 : std::exp(x - top);
    sum += x;
  }
  for (double& x : w) x = sum > 0.0 ? x / sum : 0.0;
  return w;
}

struct Noise {
  double squares = 0.0;
  std::int64_t count = 0;
};

void compare_row(const AttentionCase& c, std::int64_t b, std::int64_t h,
                 std::int64_t i, regard_bench_comparison& result,
                 Noise& noise) {
  const std::int64_t kv_head = h / (c.q.shape[1] / c.k.shape[1]);
  const std::vector<double> w = row_weights(c, b, h, i);
  const double rate = c.dropout_rate;
  for (std::int64_t e = 0; e < c.v.shape[3]; ++e) {
    double truth = 0.0, variance = 0.0;
    for (std::int64_t j = 0; j < c.k.shape[2]; ++j) {
      // A hidden value is not multiplied: it may be Inf.
      if (w[j] == 0.0) continue;
      const double term = w[j] * element(c, c.v, b, kv_head, j, e);
      truth += term;
      // A weight becomes 0 or w / (1 - rate): variance w^2 rate / (1 - rate).
      variance += term * term * rate / (1.0 - rate);
    }
    const double difference = element(c, c.out, b, h, i, e) - truth;
    const double error = std::isfinite(difference)
                             ? std::abs(difference)
                             : std::numeric_limits<double>::infinity();
    result.error = std::max(result.error, error);
    result.magnitude = std::max(result.magnitude, std::abs(truth));
    if (variance > 0.0) {
      noise.squares += error * error / variance;
      ++noise.count;
    }
  }
}

}  // namespace
}  // namespace regard::bench

extern "C" double regard_bench_compare(const regard::bench::AttentionCase* c,
                                       std::int64_t rows, std::uint64_t seed,
                                       regard_bench_comparison* result) {
  const std::int64_t heads = c->q.shape[1], q_len = c->q.shape[2];
  const std::int64_t all_rows = c->q.shape[0] * heads * q_len;
  if (all_rows < 1) return regard::bench::fail("compare: no rows");
  std::mt19937_64 random(seed);
  *result = {};
  regard::bench::Noise noise;
  for (std::int64_t n = 0; n < std::min(rows, all_rows); ++n) {
    const std::int64_t row =
        rows >= all_rows ? n
        : n == 0         ? 0
        : n == 1         ? all_rows - 1
                         : static_cast<std::int64_t>(
                       random() % static_cast<std::uint64_t>(all_rows));
    regard::bench::compare_row(*c, row / (heads * q_len), row / q_len % heads,
                               row % q_len, *result, noise);
  }
  if (noise.count > 0) {
    result->noise = std::sqrt(noise.squares / static_cast<double>(noise.count));
  }
  return 0.0;
}
