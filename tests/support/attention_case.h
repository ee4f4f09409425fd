// SPDX-License-Identifier: Apache-2.0
// One attention to compute, in plain vectors: what the reference works from,
// and what a call is built from.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "support/mask_spec.h"

namespace regard::test {

using Extents4 = std::array<std::int64_t, 4>;

inline std::size_t volume(const Extents4& shape) {
  return static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]);
}

// Values of shape [batch or 1, heads or 1, q_len or 1, kv_len or 1].
struct BiasSpec {
  Extents4 shape{};
  std::vector<double> values;

  // The place in values of what is added to one pair.
  std::size_t place(std::int64_t b, std::int64_t h, std::int64_t i,
                    std::int64_t j) const {
    const Extents4 index{b, h, i, j};
    std::int64_t at = 0;
    for (std::size_t d = 0; d < 4; ++d) {
      at = at * shape[d] + (shape[d] == 1 ? 0 : index[d]);
    }
    return static_cast<std::size_t>(at);
  }
};

struct AttentionCase {
  // In a packed case batch counts the sequences, and q_len and kv_len are the
  // packed lengths.
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t q_len = 1;
  std::int64_t kv_len = 1;
  std::int64_t d_k = 1;
  std::int64_t d_v = 1;

  std::vector<double> q{}, k{},
      v{};  // contiguous, [rows, heads, length, width]

  MaskSpec mask{};
  bool cosine = false;
  std::optional<double> scale{};
  std::vector<double> head_scales{};
  std::optional<BiasSpec> bias{};
  std::vector<double> alibi_slopes{};
  double softcap = 0;
  std::vector<double> sinks{};
  float dropout_rate = 0;
  std::uint64_t dropout_seed = 0;
  std::vector<std::int64_t> q_offsets{}, kv_offsets{};  // empty: not packed

  bool is_packed() const { return !q_offsets.empty(); }
  // The first extent of q, k and v.
  std::int64_t rows() const { return is_packed() ? 1 : batch; }
  Extents4 q_shape() const { return {rows(), heads, q_len, d_k}; }
  Extents4 k_shape() const { return {rows(), kv_heads, kv_len, d_k}; }
  Extents4 v_shape() const { return {rows(), kv_heads, kv_len, d_v}; }
  Extents4 out_shape() const { return {rows(), heads, q_len, d_v}; }
  std::int64_t group() const { return kv_heads == 0 ? 1 : heads / kv_heads; }

  // One batch entry or packed sequence: where it starts and how long it is.
  struct Entry {
    std::int64_t row = 0, q_begin = 0, kv_begin = 0;
    PairSizes sizes{};
  };
  Entry entry(std::int64_t b) const {
    Entry e{.row = b, .sizes = {batch, heads, q_len, kv_len}};
    if (!is_packed()) return e;
    e.row = 0;
    e.q_begin = q_offsets[b];
    e.kv_begin = kv_offsets[b];
    e.sizes.q_len = q_offsets[b + 1] - q_offsets[b];
    e.sizes.kv_len = kv_offsets[b + 1] - kv_offsets[b];
    return e;
  }
  // Where the elements of one query or key start in q, k, v or out.
  std::size_t query_at(const Entry& e, std::int64_t h, std::int64_t i,
                       std::int64_t width) const {
    return static_cast<std::size_t>(
        ((e.row * heads + h) * q_len + e.q_begin + i) * width);
  }
  std::size_t key_at(const Entry& e, std::int64_t h, std::int64_t j,
                     std::int64_t width) const {
    return static_cast<std::size_t>(
        ((e.row * kv_heads + h / group()) * kv_len + e.kv_begin + j) * width);
  }

  std::string describe() const {
    const auto number = [](std::int64_t n) { return std::to_string(n); };
    std::string text =
        "batch " + number(batch) + (is_packed() ? " (packed)" : "") +
        ", heads " + number(heads) + "/" + number(kv_heads) + ", q_len " +
        number(q_len) + ", kv_len " + number(kv_len) + ", d_k " + number(d_k) +
        ", d_v " + number(d_v) + ", mask " + mask.describe();
    if (cosine) text += ", cosine";
    if (scale) text += ", scale " + std::to_string(*scale);
    if (!head_scales.empty()) text += ", head_scales";
    if (bias) text += ", bias";
    if (!alibi_slopes.empty()) text += ", alibi";
    if (softcap > 0) text += ", softcap " + std::to_string(softcap);
    if (!sinks.empty()) text += ", sinks";
    if (dropout_rate > 0) text += ", dropout " + std::to_string(dropout_rate);
    return text;
  }
};

inline std::vector<double> normal_values(Rng& rng, std::size_t count,
                                         double deviation = 1) {
  std::normal_distribution<double> normal(0, deviation);
  std::vector<double> values(count);
  for (double& value : values) value = static_cast<float>(normal(rng));
  return values;
}

// Fills q, k and v of a case whose sizes are set.
inline void fill_inputs(Rng& rng, AttentionCase& c, double deviation = 1) {
  c.q = normal_values(rng, volume(c.q_shape()), deviation);
  c.k = normal_values(rng, volume(c.k_shape()), deviation);
  c.v = normal_values(rng, volume(c.v_shape()));
}

inline BiasSpec random_bias(Rng& rng, const Extents4& shape) {
  return {.shape = shape, .values = normal_values(rng, volume(shape))};
}

}  // namespace regard::test
