// SPDX-License-Identifier: Apache-2.0
#include "regard/attention/weights.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "support/weights_case.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::Rng;
using test::run_weights;
using test::weights_case;

void expect_exact(const AttentionCase& c) {
  const AttentionCase rounded = test::rounded_to<float>(c);
  const auto exact = test::reference_attention<double>(rounded);
  const auto plain = test::reference_attention<float>(rounded);
  const auto distance = test::measure(run_weights(rounded), exact.weights,
                                      plain.weights, "weights");
  EXPECT_TRUE(distance.within())
      << c.describe() << "\n  " << distance.describe();
}

TEST(AttentionWeights, AreAsExactAsTheDefinition) {
  for (const std::int64_t keys : {0, 1, 7, 48, 97, 1025}) {
    expect_exact(weights_case(9, keys));
  }
  expect_exact(weights_case(0, 5));
}

TEST(AttentionWeights, AreAsExactUnderRandomMasks) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    AttentionCase c = weights_case(40, 61);
    Rng rng(seed);
    c.mask = test::random_mask(rng, c.entry(0).sizes);
    SCOPED_TRACE(seed);
    expect_exact(c);
  }
}

TEST(AttentionWeights, FollowEveryOptionButDropout) {
  AttentionCase c = weights_case(40, 61);
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
  AttentionCase c = weights_case(70, 130);
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
