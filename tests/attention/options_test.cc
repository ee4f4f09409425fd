// SPDX-License-Identifier: Apache-2.0
// Each option of attention_forward on its own.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "support/expect_attention.h"
#include "support/refusal.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::expect_exact;
using test::expect_exact_in_every_storage;
using test::Rng;

constexpr double kInf = std::numeric_limits<double>::infinity();

AttentionCase medium() {
  return test::filled({.batch = 2,
                       .heads = 4,
                       .kv_heads = 2,
                       .q_len = 37,
                       .kv_len = 101,
                       .d_k = 24,
                       .d_v = 16});
}

TEST(ForwardOptions, ScaleReplacesTheDefault) {
  AttentionCase c = medium();
  for (const double scale : {0.0, -0.3, 1.0, 0.125}) {
    c.scale = scale;
    expect_exact_in_every_storage(c);
  }
}

TEST(ForwardOptions, HeadScalesMultiplyTheScale) {
  AttentionCase c = medium();
  c.head_scales = {0.0, -1.5, 1.0, 3.0};
  expect_exact_in_every_storage(c);
  c.scale = 0.25;
  c.cosine = true;
  expect_exact_in_every_storage(c);
}

TEST(ForwardOptions, CosineScoresIgnoreLengths) {
  AttentionCase c = medium();
  c.cosine = true;
  expect_exact_in_every_storage(c);
  c.scale = 10;
  expect_exact_in_every_storage(c);
}

TEST(ForwardOptions, AZeroVectorIsSimilarToNothing) {
  AttentionCase c = medium();
  c.cosine = true;
  c.scale = 4;
  const auto entry = c.entry(1);
  for (std::int64_t d = 0; d < c.d_k; ++d) {
    c.q[c.query_at(entry, 2, 5, c.d_k) + d] = 0;
    c.k[c.key_at(entry, 0, 9, c.d_k) + d] = 0;
    c.k[c.key_at(entry, 0, 100, c.d_k) + d] = 0;
  }
  expect_exact_in_every_storage(c);
}

TEST(ForwardOptions, BiasOfEveryBroadcastShapeIsAdded) {
  for (int bits = 0; bits < 16; ++bits) {
    AttentionCase c = medium();
    Rng rng(7);
    c.bias = test::random_bias(rng, c.pair_shape(bits));
    expect_exact<float>(c);
    expect_exact<BFloat16>(c);
    expect_exact<double>(c);
    c.mask = test::causal_spec() & test::window_spec(40, 0);
    expect_exact<float>(c);
  }
}

TEST(ForwardOptions, BiasOfMinusInfinityHidesThePair) {
  AttentionCase c = medium();
  Rng rng(7);
  c.bias = test::random_bias(rng, {1, c.heads, c.q_len, c.kv_len});
  for (double& value : c.bias->values) {
    if (test::chance(rng, 0.5)) value = -kInf;
  }
  // One row sees nothing at all, one only its last key.
  for (std::int64_t j = 0; j < c.kv_len; ++j) {
    c.bias->values[c.bias->place(0, 1, 3, j)] = -kInf;
    if (j + 1 < c.kv_len) c.bias->values[c.bias->place(0, 1, 4, j)] = -kInf;
  }
  expect_exact_in_every_storage(c);
  c.softcap = 2;  // what is hidden stays hidden: the cap does not bring it back
  expect_exact_in_every_storage(c);
  c.alibi_slopes = {0.1, -0.1, 0, 1};
  c.sinks = {0, 1, -2, 3};
  expect_exact_in_every_storage(c);
}

TEST(ForwardOptions, BiasMayBroadcastByStrideZero) {
  AttentionCase c = medium();
  Rng rng(8);
  c.bias = test::random_bias(rng, {1, 1, 1, c.kv_len});
  test::ForwardCall<float> call(c);
  call.options.bias = {call.options.bias.data(), c.pair_shape(), {0, 0, 0, 1}};
  EXPECT_EQ(call.run().out, test::run_attention<float>(c).out);
}

TEST(ForwardOptions, RelativeBiasIsATableOfDistances) {
  AttentionCase c = medium();
  Rng rng(9);
  const std::int64_t distances = c.q_len + c.kv_len - 1;
  const auto table =
      test::normal_values(rng, static_cast<std::size_t>(c.heads * distances));
  c.bias = test::BiasSpec{{1, c.heads, c.q_len, c.kv_len}, {}};
  for (std::int64_t h = 0; h < c.heads; ++h) {
    for (std::int64_t i = 0; i < c.q_len; ++i) {
      for (std::int64_t j = 0; j < c.kv_len; ++j) {
        c.bias->values.push_back(table[h * distances + j - i + c.q_len - 1]);
      }
    }
  }
  test::ForwardCall<float> call(c);
  const std::vector<float> values(table.begin(), table.end());
  call.options.bias = relative_bias(
      TensorView<const float, 2>(values.data(), {c.heads, distances}), c.q_len,
      c.kv_len);
  const auto judgement = test::judge<float>(c, call.run());
  EXPECT_TRUE(judgement.good()) << judgement.describe();
}

TEST(ForwardOptions, RelativeBiasRefusesATableOfAnotherSize) {
  const std::vector<float> table(2 * 9);
  const TensorView<const float, 2> view(table.data(), {2, 9});
  EXPECT_EQ(test::refusal([&] { relative_bias(view, 4, 6); }), "accepted");
  EXPECT_EQ(test::refusal([&] { relative_bias(view, 4, 5); }),
            "relative_bias: the table must be [heads, q_len + kv_len - 1]; it "
            "is [2, 9], q_len is 4, kv_len is 5");
}

TEST(ForwardOptions, AlibiFallsWithTheDistance) {
  AttentionCase c = medium();
  c.alibi_slopes = {0.5, 0.0, -0.25, 0.0625};
  expect_exact_in_every_storage(c);
  c.mask = test::causal_spec();
  expect_exact_in_every_storage(c);
  std::swap(c.q_len, c.kv_len);
  c = test::filled(c, 4);
  expect_exact_in_every_storage(c);
}

TEST(ForwardOptions, SoftcapBoundsTheScores) {
  AttentionCase c = medium();
  c.scale = 1;
  for (const double cap : {0.01, 1.0, 5.0, 30.0, 1e4}) {
    c.softcap = cap;
    expect_exact_in_every_storage(c);
  }
}

TEST(ForwardOptions, SinksTakeAShareOfEveryRow) {
  AttentionCase c = medium();
  c.sinks = {0, 3, -kInf, -20};
  expect_exact_in_every_storage(c);
  c.mask = test::lengths_spec({0, 50});
  expect_exact_in_every_storage(c);
  c.sinks = {50, 100, 300, -300};  // far above and far below every score
  expect_exact_in_every_storage(c);
}

TEST(ForwardOptions, DropoutFollowsTheSeed) {
  AttentionCase c = medium();
  for (const float rate : {0.0f, 1e-6f, 0.1f, 0.5f, 0.999f, 0.99999994f}) {
    for (const std::uint64_t seed : {0ull, 1ull, 0xfedcba9876543210ull}) {
      c.dropout_rate = rate;
      c.dropout_seed = seed;
      expect_exact<float>(c);
      expect_exact<double>(c);
    }
  }
  c.mask = test::causal_spec() & test::window_spec(30, 0);
  c.dropout_rate = 0.3f;
  expect_exact_in_every_storage(c);
}

TEST(ForwardOptions, DropoutAndLogSumExpHaveNothingToDoWithEachOther) {
  AttentionCase c = medium();
  const auto whole = test::run_attention<float>(c);
  c.dropout_rate = 0.5f;
  EXPECT_EQ(test::run_attention<float>(c).lse, whole.lse);
}

TEST(ForwardOptions, LogSumExpMayHaveAnyStridesAndIsOptional) {
  AttentionCase c = medium();
  const auto expected = test::run_attention<float>(c);
  test::ForwardCall<float> call(c);
  call.options.log_sum_exp = {};
  EXPECT_EQ(call.run().out, expected.out);
  // [heads, batch, q_len + 2] in memory.
  const std::int64_t row = c.q_len + 2;
  std::vector<float> lse(static_cast<std::size_t>(c.heads * c.batch * row),
                         777.0f);
  call.options.log_sum_exp = {
      lse.data(), {c.batch, c.heads, c.q_len}, {row, c.batch * row, 1}};
  call.run();
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t i = 0; i < row; ++i) {
        const float got = lse[(h * c.batch + b) * row + i];
        EXPECT_EQ(got, i < c.q_len
                           ? expected.lse[(b * c.heads + h) * c.q_len + i]
                           : 777.0f);
      }
    }
  }
}

}  // namespace
}  // namespace regard
