// SPDX-License-Identifier: Apache-2.0
// The gradients in double against central differences of attention_forward: for
// every element of every input, under every option.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/run_backward.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::BackwardCase;
using test::DenseBools;
using test::Rng;

constexpr double kInf = std::numeric_limits<double>::infinity();

// sum of d_out * out + sum of d_lse * lse, over the rows that have one.
double loss(const BackwardCase& b) {
  const auto forward = test::run_attention<double>(b.forward);
  double sum = 0;
  for (std::size_t n = 0; n < b.d_out.size(); ++n) {
    sum += b.d_out[n] * forward.out[n];
  }
  for (std::size_t n = 0; n < b.d_lse.size(); ++n) {
    if (forward.lse[n] != -kInf) sum += b.d_lse[n] * forward.lse[n];
  }
  return sum;
}

// `values` belongs to b. A difference of h = 1e-3 is off by h^2 times the third
// derivative; taken with 2h as well, that part falls out.
void expect_differences(BackwardCase& b, std::vector<double>& values,
                        const std::vector<double>& gradient, const char* name) {
  ASSERT_EQ(values.size(), gradient.size()) << name;
  constexpr double kStep = 1e-3;
  double worst = 0;
  std::size_t worst_at = 0;
  for (std::size_t n = 0; n < values.size(); ++n) {
    const double before = values[n];
    if (std::isinf(before)) {  // hides a pair, and has no slope
      EXPECT_EQ(gradient[n], 0) << name << "[" << n << "]";
      continue;
    }
    const auto at = [&](double step) {
      values[n] = before + step;
      const double result = loss(b);
      values[n] = before;
      return result;
    };
    const double near = (at(kStep) - at(-kStep)) / (2 * kStep);
    const double far = (at(2 * kStep) - at(-2 * kStep)) / (4 * kStep);
    const double difference = (4 * near - far) / 3;
    const double error =
        std::abs(difference - gradient[n]) / (1 + std::abs(difference));
    if (!(error <= worst)) {
      worst = error;
      worst_at = n;
    }
  }
  EXPECT_LE(worst, 1e-9) << name << "[" << worst_at << "], "
                         << b.forward.describe();
}

void expect_right(BackwardCase b) {
  const auto got = test::run_backward<double>(b);
  AttentionCase& c = b.forward;
  expect_differences(b, c.q, got.q, "dq");
  expect_differences(b, c.k, got.k, "dk");
  expect_differences(b, c.v, got.v, "dv");
  if (c.bias) expect_differences(b, c.bias->values, got.bias, "d_bias");
  expect_differences(b, c.alibi_slopes, got.alibi_slopes, "d_alibi_slopes");
  expect_differences(b, c.sinks, got.sinks, "d_sinks");
  expect_differences(b, c.head_scales, got.head_scales, "d_head_scales");
}

struct Sizes {
  std::int64_t batch = 2, heads = 4, kv_heads = 2, q_len = 4, kv_len = 5,
               d_k = 3, d_v = 2;
};

AttentionCase sized(const Sizes& s) {
  return test::filled(
      {s.batch, s.heads, s.kv_heads, s.q_len, s.kv_len, s.d_k, s.d_v});
}

// With the gradient of the log-sum-exp and without.
void expect_right_both_ways(const AttentionCase& c) {
  Rng rng(7);
  expect_right(test::backward_case(rng, c, false));
  expect_right(test::backward_case(rng, c, true));
}

TEST(BackwardDifferences, OfPlainAttention) {
  expect_right_both_ways(sized({}));
}

TEST(BackwardDifferences, OfEveryShape) {
  for (const Sizes& s : std::vector<Sizes>{{1, 1, 1, 1, 1, 1, 1},
                                           {1, 1, 1, 1, 7, 2, 3},
                                           {1, 2, 2, 7, 1, 2, 3},
                                           {2, 6, 2, 3, 6, 5, 1},
                                           {1, 6, 1, 5, 2, 1, 7},
                                           {3, 2, 2, 2, 9, 4, 4}}) {
    expect_right_both_ways(sized(s));
  }
}

TEST(BackwardDifferences, OfEveryMask) {
  Rng rng(3);
  const DenseBools pairs = test::random_bools(rng, {2, 4, 4, 5}, 0.5);
  DenseBools keys({1, 1, 1, 5});
  keys.values[1] = keys.values[3] = true;
  for (const test::MaskSpec& mask :
       {test::causal_spec(), test::causal_spec(mask::kTopLeft),
        test::causal_spec(mask::at_offset(-2)), test::window_spec(1, 1),
        test::window_spec(2, -1), test::prefix_spec(2),
        test::lengths_spec({3, 0}), test::lengths_spec({5, 4}, {1, 4}),
        test::documents_spec({1, 1, 2, 9}, {1, 1, 2, 2, 3}),
        test::keep_spec(pairs), test::drop_spec(pairs), test::keep_spec(keys),
        test::drop_spec(keys) & test::causal_spec(),
        test::keep_spec(pairs) & test::lengths_spec({4, 5})}) {
    AttentionCase c = sized({});
    c.mask = mask;
    expect_right_both_ways(c);
  }
}

TEST(BackwardDifferences, OfABiasInEveryBroadcastShape) {
  for (int bits = 0; bits < 16; ++bits) {
    AttentionCase c = sized({});
    Rng rng(4);
    c.bias = test::random_bias(rng, c.pair_shape(bits));
    if (bits == 0) {  // a hidden pair, and a row that sees nothing
      c.bias->values[2] = -kInf;
      for (std::int64_t j = 0; j < c.kv_len; ++j) {
        c.bias->values[c.bias->place(1, 2, 3, j)] = -kInf;
      }
    }
    expect_right_both_ways(c);
  }
}

struct Option {
  const char* name;
  std::function<void(AttentionCase&, Rng&)> set;
};

std::vector<Option> options() {
  const auto heads = [](const AttentionCase& c) {
    return static_cast<std::size_t>(c.heads);
  };
  return {
      {"scale", [](AttentionCase& c, Rng&) { c.scale = 0.7; }},
      {"scale of zero", [](AttentionCase& c, Rng&) { c.scale = 0; }},
      {"head_scales",
       [=](AttentionCase& c, Rng& rng) {
         c.head_scales = test::normal_values(rng, heads(c));
         c.head_scales[1] = 0;
       }},
      {"cosine", [](AttentionCase& c, Rng&) { c.cosine = true; }},
      {"alibi",
       [=](AttentionCase& c, Rng& rng) {
         c.alibi_slopes = test::normal_values(rng, heads(c), 0.3);
       }},
      {"softcap", [](AttentionCase& c, Rng&) { c.softcap = 1.5; }},
      {"sinks",
       [=](AttentionCase& c, Rng& rng) {
         c.sinks = test::normal_values(rng, heads(c));
       }},
      {"dropout",
       [](AttentionCase& c, Rng&) {
         c.dropout_rate = 0.4f;
         c.dropout_seed = 0x123456789abcdefull;
       }},
      {"causal", [](AttentionCase& c,
                    Rng&) { c.mask = test::causal_spec(mask::at_offset(-1)); }},
      {"bias",
       [](AttentionCase& c, Rng& rng) {
         c.bias = test::random_bias(rng, {1, c.heads, c.q_len, c.kv_len});
       }},
  };
}

TEST(BackwardDifferences, OfEveryPairOfOptions) {
  const std::vector<Option> all = options();
  for (std::size_t first = 0; first < all.size(); ++first) {
    for (std::size_t second = first; second < all.size(); ++second) {
      SCOPED_TRACE(std::string(all[first].name) + ", " + all[second].name);
      AttentionCase c = sized({.batch = 1, .q_len = 3, .kv_len = 4});
      Rng rng(5);
      all[first].set(c, rng);
      all[second].set(c, rng);
      expect_right(test::backward_case(rng, c, true));
    }
  }
}

TEST(BackwardDifferences, OfAllOptionsTogether) {
  for (const bool cosine : {false, true}) {
    AttentionCase c = sized({});
    Rng rng(6);
    for (const Option& option : options()) {
      if (option.name != std::string("scale of zero")) option.set(c, rng);
    }
    c.cosine = cosine;
    expect_right_both_ways(c);
  }
}

TEST(BackwardDifferences, OfPackedSequences) {
  AttentionCase c = test::filled(
      test::packed_shape(sized({}), {3, 0, 3, 1}, {4, 2, 0, 2}), 8);
  Rng rng(8);
  expect_right_both_ways(c);
  c.mask = test::causal_spec() & test::lengths_spec({3, 2, 0, 1});
  c.alibi_slopes = {0.1, -0.2, 0.3, 0};
  c.sinks = {1, 0, -1, 2};
  c.dropout_rate = 0.3f;
  c.dropout_seed = 9;
  expect_right_both_ways(c);
  for (const test::Extents4& shape :
       std::vector<test::Extents4>{{4, 4, 3, 4},
                                   {1, 1, 3, 4},
                                   {4, 1, 5, 6},
                                   {1, 4, 1, 4},
                                   {4, 1, 3, 1},
                                   {1, 1, 1, 1}}) {
    c.bias = test::random_bias(rng, shape);
    expect_right_both_ways(c);
  }
}

// In cosine scores a zero vector is similar to nothing, whatever it turns to.
TEST(BackwardDifferences, AZeroVectorHasNoDirection) {
  AttentionCase c = sized({});
  c.cosine = true;
  c.head_scales = {1, 2, 3, 4};
  const auto e = c.entry(1);
  const std::size_t q_at = c.query_at(e, 3, 2, c.d_k);
  const std::size_t k_at = c.key_at(e, 0, 4, c.d_k);
  test::fill_row(c.q, q_at, c.d_k, 0);
  test::fill_row(c.k, k_at, c.d_k, 0);
  Rng rng(10);
  BackwardCase b = test::backward_case(rng, c);
  const auto got = test::run_backward<double>(b);
  for (std::int64_t d = 0; d < c.d_k; ++d) {
    EXPECT_EQ(got.q[q_at + d], 0);
    EXPECT_EQ(got.k[k_at + d], 0);
  }
  expect_differences(b, b.forward.v, got.v, "dv");
  expect_differences(b, b.forward.head_scales, got.head_scales,
                     "d_head_scales");
}

// The reference judges the fused pass, so it is held to the differences too: by
// way of the gradients above, which it must meet to the last few bits.
TEST(BackwardDifferences, HoldTheReference) {
  Rng rng(11);
  AttentionCase c = sized({.batch = 3, .q_len = 6, .kv_len = 9, .d_k = 5});
  for (const Option& option : options()) {
    if (option.name != std::string("scale of zero")) option.set(c, rng);
  }
  for (const bool cosine : {false, true}) {
    c.cosine = cosine;
    const BackwardCase b = test::backward_case(rng, c, true);
    const auto got = test::run_backward<double>(b);
    const auto reference = test::reference_backward<double>(b);
    test::for_each_gradient(
        [](const char* name, const auto& x, const auto& y) {
          ASSERT_EQ(x.size(), y.size());
          for (std::size_t n = 0; n < x.size(); ++n) {
            EXPECT_NEAR(x[n], y[n], 1e-12) << name << "[" << n << "]";
          }
        },
        got, reference);
  }
}

}  // namespace
}  // namespace regard
