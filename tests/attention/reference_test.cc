// SPDX-License-Identifier: Apache-2.0
// The reference judges everything else, so it is held to numbers worked out by
// hand.
#include "support/reference_attention.h"

#include <gtest/gtest.h>

#include <limits>

namespace regard {
namespace {

using test::AttentionCase;
using test::reference_attention;

constexpr double kInf = std::numeric_limits<double>::infinity();

// One query of width 1 with q = 1 and scale 1, so that the scores are the keys.
AttentionCase one_row(std::vector<double> scores, std::vector<double> values) {
  AttentionCase c{.kv_len = std::ssize(scores)};
  c.q = {1};
  c.k = std::move(scores);
  c.v = std::move(values);
  c.scale = 1;
  return c;
}

// The known answers that come with the authors' Random123.
TEST(Reference, PhiloxGivesThePublishedWords) {
  const auto zero = test::philox_reference({{0, 0, 0, 0}}, 0, 0);
  EXPECT_EQ(zero.w[0], 0x6627e8d5u);
  EXPECT_EQ(zero.w[1], 0xe169c58du);
  EXPECT_EQ(zero.w[2], 0xbc57ac4cu);
  EXPECT_EQ(zero.w[3], 0x9b00dbd8u);
  const auto pi =
      test::philox_reference({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
                             0xa4093822, 0x299f31d0);
  EXPECT_EQ(pi.w[0], 0xd16cfe09u);
  EXPECT_EQ(pi.w[1], 0x94fdccebu);
  EXPECT_EQ(pi.w[2], 0x5001e420u);
  EXPECT_EQ(pi.w[3], 0x24126ea1u);
}

TEST(Reference, WeighsByTheExponentialOfTheScore) {
  const auto r = reference_attention<double>(
      one_row({std::log(3.0), 0, -kInf}, {4, 8, kInf}));
  EXPECT_NEAR(r.weights[0], 0.75, 1e-15);
  EXPECT_NEAR(r.weights[1], 0.25, 1e-15);
  EXPECT_EQ(r.weights[2], 0);
  EXPECT_NEAR(r.out[0], 5, 1e-15);
  EXPECT_NEAR(r.lse[0], std::log(4.0), 1e-15);
}

TEST(Reference, ScalesByTheRootOfTheWidth) {
  AttentionCase c{.kv_len = 2, .d_k = 4};
  c.q = {1, 1, 1, 1};
  c.k = {2, 0, 0, 0, 0, 0, 0, 0};  // scores 1 and 0
  c.v = {1, 0};
  const double e = std::exp(1.0);
  EXPECT_NEAR(reference_attention<double>(c).out[0], e / (e + 1), 1e-15);
  c.cosine = true;  // (1/2) and 0
  const double root = std::exp(0.5);
  EXPECT_NEAR(reference_attention<double>(c).out[0], root / (root + 1), 1e-15);
  c.head_scales = {2};
  EXPECT_NEAR(reference_attention<double>(c).out[0], e / (e + 1), 1e-15);
}

TEST(Reference, CapsThenAddsBiasAndDistance) {
  AttentionCase c = one_row({1, 1}, {1, 0});
  c.bias = test::BiasSpec{{1, 1, 1, 2}, {std::log(2.0), 0}};
  EXPECT_NEAR(reference_attention<double>(c).out[0], 2.0 / 3, 1e-15);
  c.bias.reset();
  c.alibi_slopes = {std::log(2.0)};  // the query stands at key 1
  EXPECT_NEAR(reference_attention<double>(c).out[0], 1.0 / 3, 1e-15);
  c = one_row({1e9, -1e9}, {1, 0});
  c.softcap = 0.5;  // 0.5 and -0.5
  const double e = std::exp(1.0);
  EXPECT_NEAR(reference_attention<double>(c).out[0], e / (e + 1), 1e-15);
  // Added before the cap, these would be nothing beside 1e9.
  c.bias = test::BiasSpec{{1, 1, 1, 2}, {std::log(2.0), 0}};
  c.alibi_slopes = {1};
  EXPECT_NEAR(reference_attention<double>(c).out[0], 2.0 / 3, 1e-15);
}

TEST(Reference, SinkTakesItsShareAndGivesNothing) {
  AttentionCase c = one_row({0, 0}, {4, 8});
  c.sinks = {std::log(2.0)};
  const auto r = reference_attention<double>(c);
  EXPECT_NEAR(r.out[0], 3, 1e-15);
  EXPECT_NEAR(r.weights[0] + r.weights[1], 0.5, 1e-15);
  EXPECT_NEAR(r.lse[0], std::log(4.0), 1e-15);
}

TEST(Reference, ARowThatSeesNoKeyIsZero) {
  AttentionCase c = one_row({std::nan(""), 1}, {4, std::nan("")});
  c.mask = test::lengths_spec({0});
  auto r = reference_attention<double>(c);
  EXPECT_EQ(r.out[0], 0);
  EXPECT_EQ(r.lse[0], -kInf);
  c.sinks = {3};
  r = reference_attention<double>(c);
  EXPECT_EQ(r.out[0], 0);
  EXPECT_EQ(r.lse[0], 3);
}

TEST(Reference, NaNAndInfiniteScoresSpoilTheRowAndValuesTheirElement) {
  EXPECT_TRUE(std::isnan(
      reference_attention<double>(one_row({std::nan(""), 1}, {4, 5})).out[0]));
  EXPECT_TRUE(std::isnan(
      reference_attention<double>(one_row({kInf, 1}, {4, 5})).out[0]));
  EXPECT_EQ(reference_attention<double>(one_row({0, 1}, {4, kInf})).out[0],
            kInf);
}

TEST(Reference, DropoutFollowsTheWordsAndRescalesTheRest) {
  AttentionCase c = one_row({0, 0, 0, 0}, {1, 10, 100, 1000});
  c.dropout_rate = 0.5f;
  c.dropout_seed = 0;
  // Words of counter 0 and key 0: 66.., e1.., bc.., 9b..: only the first is
  // below one half of 2^32.
  EXPECT_NEAR(reference_attention<double>(c).out[0], 0.25 * 2 * 1110, 1e-12);
}

TEST(Reference, PackedSequencesAreSeparate) {
  AttentionCase c{.batch = 2, .q_len = 2, .kv_len = 3};
  c.q = {1, 1};
  c.k = {0, 0, 5};
  c.v = {2, 4, 7};
  c.q_offsets = {0, 1, 2};
  c.kv_offsets = {0, 2, 3};
  const auto r = reference_attention<double>(c);
  EXPECT_NEAR(r.out[0], 3, 1e-15);
  EXPECT_NEAR(r.out[1], 7, 1e-15);
}

}  // namespace
}  // namespace regard
