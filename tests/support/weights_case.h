// SPDX-License-Identifier: Apache-2.0
// Asks attention_weights for parts of the weights of an AttentionCase, and
// tells what they should be.
#pragma once

#include <cstdint>
#include <vector>

#include "regard/attention/weights.h"
#include "support/attention_case.h"
#include "support/reference_attention.h"
#include "support/run_attention.h"

namespace regard::test {

// What is asked of a case.
struct Wanted {
  std::vector<std::int64_t> rows{};
  OverHeads heads = OverHeads::kEach;
  std::int64_t top = 3;
  OverRows received_over = OverRows::kSum;
  int threads = 1;
  bool all_weights = true;

  std::int64_t row_count(const AttentionCase& c) const {
    return rows.empty() ? c.q_len : std::ssize(rows);
  }
  std::int64_t head_count(const AttentionCase& c) const {
    return heads == OverHeads::kMean ? 1 : c.heads;
  }
  std::int64_t row(std::int64_t i) const {
    return rows.empty() ? i : rows[static_cast<std::size_t>(i)];
  }
};

template <typename Real>
struct Parts {
  std::vector<Real> weights;           // [batch, heads, rows, kv_len]
  std::vector<std::int64_t> top_keys;  // [batch, heads, rows, top]
  std::vector<Real> top_weights;
  std::vector<Real> received;  // [batch, heads, kv_len]
  std::vector<Real> entropy;   // [batch, heads, rows]

  // Not for results with NaN.
  bool operator==(const Parts&) const = default;
};

template <typename T>
Parts<RealFor<T>> run_parts(const AttentionCase& c, const Wanted& wanted) {
  using Real = RealFor<T>;
  Stored<T> q(c.q_shape(), Layout::kLengthFirst, c.q);
  Stored<T> k(c.k_shape(), Layout::kWithGaps, c.k);
  CallOptions<Real> options(c);
  options.value.threads.count = wanted.threads;
  const std::int64_t batch = c.rows(), heads = wanted.head_count(c),
                     rows = wanted.row_count(c), n = wanted.top;
  const auto sized = [](std::int64_t size) {
    return static_cast<std::size_t>(size);
  };
  Parts<Real> parts;
  if (wanted.all_weights && !c.is_packed()) {
    parts.weights.assign(sized(batch * heads * rows * c.kv_len), Real{42});
  }
  parts.top_keys.assign(sized(batch * heads * rows * n), 42);
  parts.top_weights.assign(sized(batch * heads * rows * n), Real{42});
  parts.received.assign(sized(batch * heads * c.kv_len), Real{42});
  parts.entropy.assign(sized(batch * heads * rows), Real{42});
  BasicWeightsRequest<Real> request{
      .rows = wanted.rows,
      .heads = wanted.heads,
      .top_keys = {parts.top_keys.data(), {batch, heads, rows, n}},
      .top_weights = {parts.top_weights.data(), {batch, heads, rows, n}},
      .received = {parts.received.data(), {batch, heads, c.kv_len}},
      .received_over = wanted.received_over,
      .entropy = {parts.entropy.data(), {batch, heads, rows}}};
  if (!parts.weights.empty()) {
    request.weights = {parts.weights.data(), {batch, heads, rows, c.kv_len}};
  }
  attention_weights(q.const_view(), k.const_view(), request, options.value);
  return parts;
}

// All weights, by the call that writes nothing else.
inline std::vector<float> run_weights(const AttentionCase& c) {
  Stored<float> q(c.q_shape(), Layout::kLengthFirst, c.q);
  Stored<float> k(c.k_shape(), Layout::kWithGaps, c.k);
  Stored<float> weights(c.pair_shape(), Layout::kContiguous);
  CallOptions<float> options(c);
  attention_weights(q.const_view(), k.const_view(), weights.view(),
                    options.value);
  return weights.elements();
}

// The same from the definition.
struct ExpectedRow {
  std::vector<double> weights;  // of the keys of its own sequence
  std::int64_t kv_begin = 0;
  std::int64_t sequence = 0;
};

class Expected {
 public:
  Expected(const AttentionCase& c, const Wanted& wanted)
      : c_(c), wanted_(wanted) {
    for (std::int64_t s = 0; s < (c.is_packed() ? c.batch : 1); ++s) {
      weights_.push_back(
          reference_attention<double>(c.is_packed() ? alone(c, s) : c).weights);
    }
  }

  ExpectedRow row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    std::int64_t query = wanted_.row(i);
    if (c_.is_packed()) {
      b = 0;
      while (c_.q_offsets[static_cast<std::size_t>(b) + 1] <= query) ++b;
    }
    const AttentionCase::Entry e = c_.entry(b);
    query -= e.q_begin;
    const std::int64_t kv_len = e.sizes.kv_len;
    ExpectedRow row{std::vector<double>(static_cast<std::size_t>(kv_len)),
                    e.kv_begin, b};
    const bool mean = wanted_.heads == OverHeads::kMean;
    for (std::int64_t head = mean ? 0 : h; head < (mean ? c_.heads : h + 1);
         ++head) {
      const auto& all =
          weights_[c_.is_packed() ? static_cast<std::size_t>(b) : 0];
      const double* from =
          all.data() +
          (((c_.is_packed() ? 0 : b) * c_.heads + head) * e.sizes.q_len +
           query) *
              kv_len;
      for (std::int64_t j = 0; j < kv_len; ++j) {
        // A hidden pair has weight 0, in a broken row too.
        if (!c_.mask.visible(e.sizes, b, head, query, j)) continue;
        row.weights[static_cast<std::size_t>(j)] +=
            from[j] / static_cast<double>(mean ? c_.heads : 1);
      }
    }
    return row;
  }

 private:
  const AttentionCase& c_;
  const Wanted& wanted_;
  std::vector<std::vector<double>> weights_;  // of each sequence, or of all
};

inline AttentionCase weights_case(std::int64_t q_len, std::int64_t kv_len) {
  return filled({.batch = 2,
                 .heads = 4,
                 .kv_heads = 2,
                 .q_len = q_len,
                 .kv_len = kv_len,
                 .d_k = 16,
                 .d_v = 8},
                static_cast<std::uint64_t>(q_len * 1000 + kv_len));
}

inline AttentionCase packed_weights_case() {
  return filled(packed_shape({.heads = 4, .kv_heads = 2, .d_k = 16, .d_v = 8},
                             {50, 0, 49, 2}, {30, 7, 0, 113}),
                5);
}

}  // namespace regard::test
