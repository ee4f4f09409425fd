// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the tests of compute = kBFloat16 share, forward and backward.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <sstream>
#include <string>

#include "kernels/bf16_cpu.h"
#include "support/run_attention.h"

namespace regard::test {

// Runs `body` on every path that the machine has, then lets it choose again.
inline void on_every_bf16_path(const std::function<void()>& body) {
  using kernels::Bf16Path;
  for (const Bf16Path path :
       {Bf16Path::kAmx, Bf16Path::kDot, Bf16Path::kPortable}) {
    if (!kernels::choose_bf16_path(path)) continue;
    const char* const names[] = {"AMX", "VDPBF16PS", "portable"};
    SCOPED_TRACE(names[static_cast<int>(path)]);
    body();
    kernels::choose_best_bf16_path();
  }
}

struct Bf16Shape {
  std::int64_t batch, heads, kv_heads, q_len, kv_len, d_k, d_v;
};

inline std::string bf16_shape_name(
    const ::testing::TestParamInfo<Bf16Shape>& info) {
  const Bf16Shape& s = info.param;
  std::ostringstream name;
  name << "b" << s.batch << "_h" << s.heads << "kv" << s.kv_heads << "_q"
       << s.q_len << "_k" << s.kv_len << "_d" << s.d_k << "x" << s.d_v;
  return name.str();
}

inline AttentionCase bf16_case(const Bf16Shape& s, std::uint64_t seed = 1) {
  AttentionCase c{.batch = s.batch,
                  .heads = s.heads,
                  .kv_heads = s.kv_heads,
                  .q_len = s.q_len,
                  .kv_len = s.kv_len,
                  .d_k = s.d_k,
                  .d_v = s.d_v};
  Rng rng(seed);
  fill_inputs(rng, c);
  return c;
}

// Four heads of queries, two of keys, and no size that is a whole tile.
inline AttentionCase medium_bf16_case() {
  return bf16_case({2, 4, 2, 60, 150, 40, 24});
}

// medium_bf16_case() with every option, one after the other.
inline void with_every_bf16_option(
    const std::function<void(const AttentionCase&)>& visit) {
  const double inf = std::numeric_limits<double>::infinity();
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
    for (std::int64_t d = 0; d < c.d_k; ++d) c.q[d] = c.k[d] = 0;
  });
  with([](AttentionCase& c) { c.alibi_slopes = {0.5, 0, -0.25, 0.0625}; });
  with([](AttentionCase& c) { c.softcap = 2; });
  with([&](AttentionCase& c) { c.sinks = {0, 3, -inf, -20}; });
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
  with([&](AttentionCase& c) {
    Rng rng(4);
    c.bias = random_bias(rng, {1, 1, 60, 150});
    for (std::size_t n = 0; n < c.bias->values.size(); n += 3) {
      c.bias->values[n] = -inf;
    }
    c.softcap = 3;
    c.sinks = {1, 2, 3, 4};
    c.alibi_slopes = {0.1, 0.2, 0.3, 0.4};
    c.dropout_rate = 0.1f;
  });
}

}  // namespace regard::test
