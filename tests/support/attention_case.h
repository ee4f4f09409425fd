// SPDX-License-Identifier: Apache-2.0
// One attention to compute, in plain vectors: what the reference works from,
// and what a call is built from.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
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

// Without inputs it is a shape: see filled().
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

  // Contiguous, [rows, heads, length, width].
  std::vector<double> q{}, k{}, v{};

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
  // [batch, heads, q_len, kv_len], and 1 for each extent whose bit is set in
  // `ones`: the shapes that a dense mask or a bias may have.
  Extents4 pair_shape(int ones = 0) const {
    return {ones & 1 ? 1 : batch, ones & 2 ? 1 : heads, ones & 4 ? 1 : q_len,
            ones & 8 ? 1 : kv_len};
  }
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
  // The shape, as the name of a test may say it.
  std::string shape_name() const {
    std::ostringstream name;
    name << "b" << batch << "_h" << heads << "kv" << kv_heads << "_q" << q_len
         << "_k" << kv_len << "_d" << d_k << "x" << d_v;
    return name.str();
  }
  // For GoogleTest.
  friend void PrintTo(const AttentionCase& c, std::ostream* out) {
    *out << c.describe();
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

inline AttentionCase filled(AttentionCase c, std::uint64_t seed = 1,
                            double deviation = 1) {
  Rng rng(seed);
  fill_inputs(rng, c, deviation);
  return c;
}

// The sequences of these lengths one after the other, of a shape that says the
// heads and widths.
inline AttentionCase packed_shape(AttentionCase c,
                                  const std::vector<std::int64_t>& q_lens,
                                  const std::vector<std::int64_t>& kv_lens) {
  const auto offsets = [](const std::vector<std::int64_t>& lengths) {
    std::vector<std::int64_t> ends{0};
    for (const std::int64_t n : lengths) ends.push_back(ends.back() + n);
    return ends;
  };
  c.batch = std::ssize(q_lens);
  c.q_offsets = offsets(q_lens);
  c.kv_offsets = offsets(kv_lens);
  c.q_len = c.q_offsets.back();
  c.kv_len = c.kv_offsets.back();
  return c;
}

// Some with no query, one with no key, none as long as another.
inline AttentionCase six_sequences() {
  return packed_shape({.heads = 4, .kv_heads = 2, .d_k = 16, .d_v = 24},
                      {7, 0, 1, 49, 3, 97}, {7, 5, 60, 49, 0, 131});
}

// Without a batch, a head, a query, a key or a width; or without several.
inline std::vector<AttentionCase> empty_shapes() {
  return {{0, 2, 2, 3, 4, 5, 6}, {2, 0, 0, 3, 4, 5, 6}, {2, 2, 2, 0, 4, 5, 6},
          {2, 2, 2, 3, 0, 5, 6}, {2, 2, 2, 3, 4, 5, 0}, {2, 2, 2, 3, 0, 0, 6},
          {0, 0, 0, 0, 0, 0, 0}, {1, 1, 1, 0, 0, 8, 8}};
}

struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Some queries and the first keys of one entry, as a case of their own. A bias
// stays as it is.
inline AttentionCase part_of(const AttentionCase& c, std::int64_t b,
                             Span queries, std::int64_t keys, MaskSpec mask) {
  AttentionCase part = c;
  part.batch = 1;
  part.q_len = queries.end - queries.begin;
  part.kv_len = keys;
  part.mask = std::move(mask);
  for (auto* values : {&part.q, &part.k, &part.v}) values->clear();
  part.q_offsets.clear();
  part.kv_offsets.clear();
  const AttentionCase::Entry e = c.entry(b);
  const auto take = [](std::vector<double>& to, const std::vector<double>& from,
                       std::size_t at, std::int64_t count) {
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(at);
    to.insert(to.end(), begin, begin + count);
  };
  for (std::int64_t h = 0; h < c.heads; ++h) {
    take(part.q, c.q, c.query_at(e, h, queries.begin, c.d_k),
         part.q_len * c.d_k);
  }
  for (std::int64_t h = 0; h < c.heads; h += c.group()) {
    take(part.k, c.k, c.key_at(e, h, 0, c.d_k), keys * c.d_k);
    take(part.v, c.v, c.key_at(e, h, 0, c.d_v), keys * c.d_v);
  }
  return part;
}

// One batch entry or packed sequence.
inline AttentionCase alone(const AttentionCase& c, std::int64_t b) {
  const PairSizes sizes = c.entry(b).sizes;
  return part_of(c, b, {0, sizes.q_len}, sizes.kv_len, c.mask);
}

inline BiasSpec random_bias(Rng& rng, const Extents4& shape) {
  return {.shape = shape, .values = normal_values(rng, volume(shape))};
}

// Everything at once but cosine scores, so that no option is only right alone.
inline void add_all_options(Rng& rng, AttentionCase& c) {
  const auto heads = static_cast<std::size_t>(c.heads);
  c.mask = causal_spec(mask::at_offset(c.kv_len / 2)) &
           keep_spec(random_bools(rng, c.entry(0).sizes));
  c.head_scales = normal_values(rng, heads);
  c.bias = random_bias(rng, {c.batch, 1, c.q_len, c.kv_len});
  c.alibi_slopes = normal_values(rng, heads, 0.1);
  c.softcap = 3;
  c.sinks = normal_values(rng, heads);
  c.dropout_rate = 0.2f;
  c.dropout_seed = 0x123456789abcdefull;
}

// What must not reach any result where it is not seen.
inline const double kPoisons[] = {std::nan(""), HUGE_VAL, -HUGE_VAL};

inline double random_poison(Rng& rng) { return kPoisons[pick(rng, 0, 2)]; }

inline void fill_row(std::vector<double>& values, std::size_t at,
                     std::int64_t width, double value) {
  std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(at), width, value);
}

}  // namespace regard::test
