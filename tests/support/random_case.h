// SPDX-License-Identifier: Apache-2.0
// A random attention: odd sizes, all options mixed, NaN and infinities wherever
// nobody looks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/attention_case.h"

namespace regard::test {

inline std::int64_t random_length(Rng& rng, std::int64_t longest) {
  const std::int64_t length = one_of(
      rng, {1,  2,  3,  7,  15, 16, 17,  31,  33,  47,   48,   49,   59,
            63, 64, 65, 95, 96, 97, 127, 128, 129, 1023, 1024, 1025, 2049});
  return length <= longest && chance(rng, 0.6) ? length : pick(rng, 0, longest);
}

inline std::int64_t random_width(Rng& rng, std::int64_t widest) {
  const std::int64_t width =
      one_of(rng, {1,  2,  3,  4,  5,  7,  8,  9,  12,  15,  16,  17, 24,
                   32, 40, 48, 63, 64, 65, 72, 96, 100, 128, 256, 257});
  return std::min(width, widest);
}

// Most are small, so that many can be tried; a few cross 1024 keys or are wide.
inline void pick_sizes(Rng& rng, AttentionCase& c) {
  c.kv_heads = pick(rng, 1, 3);
  c.heads = c.kv_heads * one_of(rng, {1, 1, 1, 2, 3, 4, 8});
  const std::int64_t kind = pick(rng, 0, 19);
  if (kind == 0) {  // long
    c.heads = c.kv_heads = 1;
    c.q_len = random_length(rng, 9);
    c.kv_len = random_length(rng, 2100);
    c.d_k = random_width(rng, 16);
    c.d_v = random_width(rng, 16);
  } else if (kind == 1) {  // wide
    c.q_len = random_length(rng, 9);
    c.kv_len = random_length(rng, 20);
    c.d_k = random_width(rng, 257);
    c.d_v = random_width(rng, 257);
  } else {
    c.q_len = random_length(rng, kind < 10 ? 20 : 70);
    c.kv_len = random_length(rng, kind < 10 ? 140 : 60);
    c.d_k = random_width(rng, 24);
    c.d_v = random_width(rng, 24);
  }
  c.batch = kind < 2 ? 1 : pick(rng, 1, 3);
}

inline std::vector<std::int64_t> random_offsets(Rng& rng, std::int64_t count,
                                                std::int64_t total) {
  std::vector<std::int64_t> offsets{0, total};
  for (std::int64_t n = 1; n < count; ++n) {
    offsets.push_back(pick(rng, 0, total));
  }
  std::sort(offsets.begin(), offsets.end());
  return offsets;
}

// Masks that fit sequences of several lengths.
inline MaskSpec random_packed_mask(Rng& rng, const AttentionCase& c) {
  MaskSpec spec;
  for (std::int64_t parts = one_of(rng, {0, 1, 1, 2}); parts > 0; --parts) {
    const PairSizes sizes{c.batch, c.heads, c.q_len, c.kv_len};
    switch (pick(rng, 0, 3)) {
      case 0:
        spec = spec & causal_spec(random_alignment(rng, sizes));
        break;
      case 1:
        spec = spec & window_spec(pick(rng, -1, 20), pick(rng, -1, 20));
        break;
      case 2:
        spec = spec & prefix_spec(pick(rng, 0, 20));
        break;
      default: {
        std::vector<std::int64_t> keys, queries;
        for (std::int64_t b = 0; b < c.batch; ++b) {
          keys.push_back(pick(rng, 0, c.entry(b).sizes.kv_len));
          queries.push_back(pick(rng, 0, c.entry(b).sizes.q_len));
        }
        if (chance(rng, 0.5)) queries.clear();
        spec = spec & lengths_spec(keys, queries);
      }
    }
  }
  return spec;
}

inline BiasSpec random_call_bias(Rng& rng, const AttentionCase& c) {
  std::int64_t longest_q = 0, longest_kv = 0;
  for (std::int64_t b = 0; b < c.batch; ++b) {
    longest_q = std::max(longest_q, c.entry(b).sizes.q_len);
    longest_kv = std::max(longest_kv, c.entry(b).sizes.kv_len);
  }
  const auto extent = [&](std::int64_t full) {
    return chance(rng, 0.4) ? std::int64_t{1} : full;
  };
  // An extent of 1 means broadcast, also where the longest sequence has one.
  BiasSpec bias = random_bias(rng, {extent(c.batch), extent(c.heads),
                                    extent(longest_q), extent(longest_kv)});
  if (chance(rng, 0.3)) {
    for (double& value : bias.values) {
      if (chance(rng, 0.3)) value = -std::numeric_limits<double>::infinity();
    }
  }
  return bias;
}

// Poisons queries, keys, values and biases that no visible pair uses.
inline void poison_unseen(Rng& rng, AttentionCase& c) {
  std::vector<char> q_seen(c.q.size()), k_seen(c.k.size()), v_seen(c.v.size());
  std::vector<char> bias_seen(c.bias ? c.bias->values.size() : 0);
  const auto mark = [](std::vector<char>& seen, std::size_t at,
                       std::int64_t count) {
    std::fill_n(seen.begin() + static_cast<std::ptrdiff_t>(at), count, 1);
  };
  for (std::int64_t b = 0; b < c.batch; ++b) {
    const AttentionCase::Entry e = c.entry(b);
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t i = 0; i < e.sizes.q_len; ++i) {
        for (std::int64_t j = 0; j < e.sizes.kv_len; ++j) {
          if (!c.mask.visible(e.sizes, b, h, i, j)) continue;
          mark(q_seen, c.query_at(e, h, i, c.d_k), c.d_k);
          mark(k_seen, c.key_at(e, h, j, c.d_k), c.d_k);
          bool hidden = false;
          if (c.bias) {
            const std::size_t at = c.bias->place(b, h, i, j);
            bias_seen[at] = 1;
            hidden = std::isinf(c.bias->values[at]);
          }
          if (!hidden) mark(v_seen, c.key_at(e, h, j, c.d_v), c.d_v);
        }
      }
    }
  }
  const auto poison = [&](std::vector<double>& values,
                          const std::vector<char>& seen) {
    const double value = random_poison(rng);
    for (std::size_t n = 0; n < values.size(); ++n) {
      if (!seen[n]) values[n] = value;
    }
  };
  poison(c.q, q_seen);
  poison(c.k, k_seen);
  poison(c.v, v_seen);
  if (c.bias) poison(c.bias->values, bias_seen);
}

inline AttentionCase random_case(Rng& rng) {
  AttentionCase c;
  pick_sizes(rng, c);
  if (chance(rng, 0.15)) {
    c.batch = pick(rng, 1, 5);
    c.q_offsets = random_offsets(rng, c.batch, c.q_len);
    c.kv_offsets = random_offsets(rng, c.batch, c.kv_len);
    c.mask = random_packed_mask(rng, c);
  } else {
    c.mask = random_mask(rng, {c.batch, c.heads, c.q_len, c.kv_len});
  }
  fill_inputs(rng, c, std::array{1.0, 1.0, 1.0, 0.1, 3.0}[pick(rng, 0, 4)]);
  const auto heads = static_cast<std::size_t>(c.heads);
  c.cosine = chance(rng, 0.15);
  if (chance(rng, 0.2)) c.scale = normal_values(rng, 1)[0];
  if (chance(rng, 0.15)) c.head_scales = normal_values(rng, heads);
  if (chance(rng, 0.3)) c.bias = random_call_bias(rng, c);
  if (chance(rng, 0.2)) c.alibi_slopes = normal_values(rng, heads, 0.1);
  if (chance(rng, 0.2)) {
    c.softcap = std::array{0.1, 1.0, 5.0, 30.0}[pick(rng, 0, 3)];
  }
  if (chance(rng, 0.2)) c.sinks = normal_values(rng, heads, 2);
  if (chance(rng, 0.2)) {
    c.dropout_rate = std::array{0.01f, 0.1f, 0.5f, 0.9f}[pick(rng, 0, 3)];
    c.dropout_seed = rng();
  }
  if (chance(rng, 0.5)) poison_unseen(rng, c);
  return c;
}

}  // namespace regard::test
