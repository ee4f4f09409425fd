// SPDX-License-Identifier: Apache-2.0
#include "regard/attention/weights.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "support/run_attention.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::Rng;

std::vector<float> run_weights(const AttentionCase& c) {
  test::Stored<float> q(c.q_shape(), test::Layout::kLengthFirst, c.q);
  test::Stored<float> k(c.k_shape(), test::Layout::kWithGaps, c.k);
  const test::Extents4 shape{c.batch, c.heads, c.q_len, c.kv_len};
  test::Stored<float> weights(shape, test::Layout::kContiguous);
  test::CallOptions<float> options(c);
  attention_weights(q.const_view(), k.const_view(), weights.view(),
                    options.value);
  return weights.elements();
}

void expect_exact(const AttentionCase& c) {
  const AttentionCase rounded = test::rounded_to<float>(c);
  const auto exact = test::reference_attention<double>(rounded);
  const auto plain = test::reference_attention<float>(rounded);
  const auto distance = test::measure(run_weights(rounded), exact.weights,
                                      plain.weights, "weights");
  EXPECT_TRUE(distance.within())
      << c.describe() << "\n  " << distance.describe();
}

AttentionCase sized(std::int64_t q_len, std::int64_t kv_len) {
  AttentionCase c{.batch = 2,
                  .heads = 4,
                  .kv_heads = 2,
                  .q_len = q_len,
                  .kv_len = kv_len,
                  .d_k = 16,
                  .d_v = 1};
  Rng rng(1);
  test::fill_inputs(rng, c);
  return c;
}

TEST(AttentionWeights, AreAsExactAsTheDefinition) {
  for (const std::int64_t keys : {0, 1, 7, 48, 97, 1025}) {
    expect_exact(sized(9, keys));
  }
  expect_exact(sized(0, 5));
}

TEST(AttentionWeights, AreAsExactUnderRandomMasks) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    AttentionCase c = sized(40, 61);
    Rng rng(seed);
    c.mask = test::random_mask(rng, c.entry(0).sizes);
    SCOPED_TRACE(seed);
    expect_exact(c);
  }
}

TEST(AttentionWeights, FollowEveryOptionButDropout) {
  AttentionCase c = sized(40, 61);
  Rng rng(3);
  c.bias = test::random_bias(rng, {1, c.heads, c.q_len, 1});
  c.bias->values[17] = -std::numeric_limits<double>::infinity();
  c.head_scales = test::normal_values(rng, 4);
  c.alibi_slopes = test::normal_values(rng, 4, 0.1);
  c.sinks = test::normal_values(rng, 4);
  c.softcap = 2;
  expect_exact(c);
  c.cosine = true;
  expect_exact(c);
  const auto before = run_weights(c);
  c.dropout_rate = 0.5f;
  EXPECT_EQ(run_weights(c), before);
}

TEST(AttentionWeights, SumToOneInEveryRowThatSeesAKey) {
  AttentionCase c = sized(70, 130);
  c.mask = test::lengths_spec({130, 0}) & test::causal_spec();
  const auto weights = run_weights(c);
  for (std::size_t row = 0; row < weights.size() / 130; ++row) {
    double sum = 0;
    for (std::size_t j = 0; j < 130; ++j) sum += weights[row * 130 + j];
    EXPECT_NEAR(sum, row < 4 * 70 ? 1 : 0, 1e-5);
  }
}

}  // namespace
}  // namespace regard
