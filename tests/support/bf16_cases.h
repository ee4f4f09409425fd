// SPDX-License-Identifier: Apache-2.0
// What the tests of compute = kBFloat16 share, forward and backward.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "support/attention_case.h"

namespace regard::test {

// Around the tiles of 16 rows and 32 numbers, and one of the widths given.
inline std::vector<AttentionCase> bf16_shapes(std::int64_t widest_d_k,
                                              std::int64_t widest_d_v) {
  return {{1, 1, 1, 1, 1, 1, 1},
          {1, 1, 1, 1, 33, 32, 16},
          {2, 3, 1, 17, 31, 31, 15},
          {1, 2, 2, 16, 32, 33, 17},
          {1, 2, 1, 33, 257, 64, 64},
          {1, 2, 2, 97, 300, 128, 48},
          {1, 6, 2, 59, 97, 80, 96},
          {2, 2, 1, 300, 70, 7, 5},
          {1, 2, 1, 0, 5, 8, 8},
          {1, 2, 1, 5, 0, 8, 8},
          {0, 2, 1, 5, 5, 8, 8},
          {1, 2, 1, 5, 40, 8, 0},
          {1, 1, 1, 40, 64, widest_d_k, widest_d_v}};
}

// Four heads of queries, two of keys, and no size that is a whole tile.
inline AttentionCase medium_bf16_case() {
  return filled({2, 4, 2, 60, 150, 40, 24});
}

// medium_bf16_case() with every option, one after the other.
inline void with_every_bf16_option(
    const std::function<void(const AttentionCase&)>& visit) {
  const auto with = [&](const std::function<void(AttentionCase&)>& change) {
    AttentionCase c = medium_bf16_case();
    change(c);
    visit(c);
  };
  with([](AttentionCase& c) { c.scale = 0.3; });
  with([](AttentionCase& c) { c.head_scales = {1, 0, -0.5, 2}; });
  with([](AttentionCase& c) { c.cosine = true; });
  with([](AttentionCase& c) {
    c.cosine = true;
    c.scale = 5;
    c.head_scales = {1, 2, -1, 0.5};
    fill_row(c.q, 0, c.d_k, 0);
    fill_row(c.k, 0, c.d_k, 0);
  });
  with([](AttentionCase& c) { c.alibi_slopes = {0.5, 0, -0.25, 0.0625}; });
  with([](AttentionCase& c) { c.softcap = 2; });
  with([](AttentionCase& c) {
    c.cosine = true;
    c.scale = 4;
    c.softcap = 1.5;
  });
  with([](AttentionCase& c) { c.sinks = {0, 3, -HUGE_VAL, -20}; });
  with([](AttentionCase& c) {
    c.dropout_rate = 0.3f;
    c.dropout_seed = 0xfedcba9876543210ull;
  });
  for (const Extents4& shape :
       {Extents4{2, 4, 60, 150}, {1, 4, 1, 150}, {2, 1, 60, 1}}) {
    with([&](AttentionCase& c) {
      Rng rng(3);
      c.bias = random_bias(rng, shape);
    });
  }
  with([](AttentionCase& c) {
    Rng rng(4);
    c.bias = random_bias(rng, {1, 1, 60, 150});
    for (std::size_t n = 0; n < c.bias->values.size(); n += 3) {
      c.bias->values[n] = -HUGE_VAL;
    }
    c.softcap = 3;
    c.sinks = {1, 2, 3, 4};
    c.alibi_slopes = {0.1, 0.2, 0.3, 0.4};
    c.dropout_rate = 0.1f;
  });
}

}  // namespace regard::test
