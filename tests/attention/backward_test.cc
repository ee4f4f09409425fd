// SPDX-License-Identifier: Apache-2.0
// The fused backward pass in every shape and under every option against the
// reference: at most twice as far from the truth as a plain float loop is.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "support/every_mask.h"
#include "support/run_backward.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::BackwardRun;
using test::filled;
using test::Layout;
using test::MaskSpec;
using test::Rng;

template <typename T>
void expect_exact(const AttentionCase& c, const BackwardRun& run = {},
                  bool with_d_lse = false) {
  Rng rng(9);
  EXPECT_EQ(
      test::gradient_complaint<T>(test::backward_case(rng, c, with_d_lse), run),
      "");
}

class BackwardShapes : public ::testing::TestWithParam<AttentionCase> {};

TEST_P(BackwardShapes, AreAsExactAsTheDefinition) {
  expect_exact<float>(filled(GetParam()));
}

TEST_P(BackwardShapes, AreAsExactUnderACausalMask) {
  AttentionCase c = filled(GetParam());
  c.mask = test::causal_spec();
  expect_exact<float>(c, {}, true);
}

TEST_P(BackwardShapes, AreAsExactInEveryStorageType) {
  const AttentionCase c = filled(GetParam());
  expect_exact<BFloat16>(c);
  expect_exact<Float16>(c);
  expect_exact<double>(c);
}

TEST_P(BackwardShapes, AreAsExactWithAllOptions) {
  AttentionCase c = filled(GetParam());
  Rng rng(2);
  test::add_all_options(rng, c);
  expect_exact<float>(c, {.threads = 2}, true);
  expect_exact<BFloat16>(c, {}, true);
  c.cosine = true;
  expect_exact<float>(c, {}, true);
}

// Odd sizes around the tiles: 48 rows, 96 keys, 16 columns.
std::vector<AttentionCase> shapes() {
  std::vector<AttentionCase> all;
  for (const std::int64_t keys :
       {1, 2, 7, 15, 16, 17, 95, 96, 97, 191, 192, 193, 289, 1025}) {
    all.push_back({1, 2, 1, keys > 1000 ? 3 : 25, keys, 16, 16});
  }
  for (const std::int64_t queries :
       {2, 3, 5, 6, 7, 15, 17, 31, 47, 48, 49, 95, 96, 97, 145}) {
    all.push_back({2, 2, 2, queries, 50, 24, 8});
  }
  for (const std::int64_t width : {1,  2,  3,  7,  8,  9,  15, 16,  17,  31,
                                   33, 47, 48, 63, 65, 80, 96, 127, 128, 257}) {
    all.push_back({1, 2, 2, 19, 53, width, 16});
    all.push_back({1, 2, 1, 19, 53, 16, width});
  }
  all.push_back({1, 1, 1, 9, 101, 65, 257});
  all.push_back({3, 6, 2, 21, 37, 40, 72});  // groups cut through a query
  all.push_back({1, 5, 1, 29, 100, 8, 8});
  all.push_back({1, 8, 1, 1, 99, 64, 64});
  all.push_back({2, 7, 7, 3, 30, 20, 20});
  all.push_back({7, 1, 1, 4, 6, 64, 64});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Odd, BackwardShapes, ::testing::ValuesIn(shapes()),
                         [](const auto& c) { return c.param.shape_name(); });

class BackwardMasks : public ::testing::TestWithParam<test::NamedMask> {};

TEST_P(BackwardMasks, AreAsExactAsTheDefinition) {
  for (const AttentionCase& shape :
       std::vector<AttentionCase>{{2, 4, 2, 70, 70, 16, 16},
                                  {3, 2, 1, 33, 230, 8, 24},
                                  {2, 2, 2, 160, 49, 40, 8},
                                  {2, 3, 3, 1, 200, 16, 16}}) {
    AttentionCase c = filled(shape);
    Rng rng(3);
    c.mask = GetParam().build(c.entry(0).sizes, rng);
    expect_exact<float>(c, {.threads = 2});
    expect_exact<BFloat16>(c);
  }
}

INSTANTIATE_TEST_SUITE_P(All, BackwardMasks,
                         ::testing::ValuesIn(test::every_mask()),
                         [](const auto& mask) { return mask.param.name; });

// One test a shape of the bias: bits tell which extents are 1.
class BackwardBias : public ::testing::TestWithParam<int> {};

TEST_P(BackwardBias, IsSummedOverEveryExtentThatIsOne) {
  const int bits = GetParam();
  for (const AttentionCase& shape :
       std::vector<AttentionCase>{{2, 4, 2, 70, 110, 16, 16},
                                  {3, 5, 1, 33, 200, 8, 8},
                                  {1, 2, 2, 101, 301, 8, 8}}) {
    AttentionCase c = filled(shape);
    Rng rng(4);
    c.bias = test::random_bias(rng, c.pair_shape(bits));
    for (const int threads : {1, 2}) {
      expect_exact<float>(c, {.threads = threads});
    }
    c.mask = test::causal_spec();
    expect_exact<float>(c, {.gradients = Layout::kWithGaps, .threads = 3},
                        true);
    expect_exact<Float16>(c);
  }
}

INSTANTIATE_TEST_SUITE_P(All, BackwardBias, ::testing::Range(0, 16));

TEST(Backward, IsAsExactInEveryLayout) {
  const AttentionCase c = filled({2, 4, 2, 70, 110, 24, 40});
  for (const Layout layout :
       {Layout::kLengthFirst, Layout::kWithGaps, Layout::kPackedInRows}) {
    const BackwardRun run{
        .q = layout, .kv = layout, .out = layout, .gradients = layout};
    expect_exact<float>(c, run);
    expect_exact<double>(c, run);
    expect_exact<BFloat16>(c, run);
    expect_exact<Float16>(c, run);
  }
  expect_exact<float>(c, {.q = Layout::kLengthFirst,
                          .kv = Layout::kPackedInRows,
                          .out = Layout::kWithGaps,
                          .gradients = Layout::kLengthFirst,
                          .threads = 3});
}

TEST(Backward, OfPackedSequencesIsAsExact) {
  AttentionCase c = filled(test::six_sequences(), 5);
  Rng rng(5);
  expect_exact<float>(c);
  expect_exact<BFloat16>(c, {.threads = 2});
  expect_exact<double>(c);
  for (const MaskSpec& mask :
       {test::causal_spec(), test::causal_spec() & test::window_spec(9, 0),
        test::lengths_spec({7, 5, 60, 49, 0, 131}, {7, 0, 0, 40, 3, 90})}) {
    c.mask = mask;
    expect_exact<float>(c, {.threads = 2}, true);
  }
  c.alibi_slopes = {0.1, 0.2, -0.3, 0};
  c.dropout_rate = 0.25f;
  c.dropout_seed = 99;
  c.sinks = {0, 1, 2, 3};
  for (const test::Extents4& shape :
       std::vector<test::Extents4>{{6, 1, 97, 131},
                                   {1, 4, 97, 131},
                                   {6, 4, 100, 140},
                                   {6, 1, 1, 131},
                                   {1, 1, 97, 1},
                                   {1, 1, 1, 1}}) {
    c.bias = test::random_bias(rng, shape);
    expect_exact<float>(c, {.threads = 2});
  }
}

// Scores of a hundred and more: the weights are nearly one or zero.
TEST(Backward, OfLargeScoresIsAsExact) {
  AttentionCase c = filled({1, 2, 2, 60, 130, 32, 16}, 6, 5);
  expect_exact<float>(c);
  c.softcap = 30;
  expect_exact<float>(c);
  c.softcap = 0;
  c.sinks = {50, -50};
  expect_exact<float>(c);
}

TEST(Backward, OfRandomMasksAndOptionsIsAsExact) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    AttentionCase c = filled({test::pick(rng, 1, 3), 4, 2,
                              test::pick(rng, 1, 70), test::pick(rng, 1, 140),
                              test::pick(rng, 1, 40), test::pick(rng, 1, 40)},
                             seed);
    c.mask = test::random_mask(rng, {c.batch, c.heads, c.q_len, c.kv_len});
    c.cosine = test::chance(rng, 0.3);
    if (test::chance(rng, 0.3)) c.scale = test::normal_values(rng, 1)[0];
    if (test::chance(rng, 0.3)) c.head_scales = test::normal_values(rng, 4);
    if (test::chance(rng, 0.3)) c.softcap = 2;
    if (test::chance(rng, 0.3)) c.sinks = test::normal_values(rng, 4);
    if (test::chance(rng, 0.3)) {
      c.alibi_slopes = test::normal_values(rng, 4, 0.1);
    }
    if (test::chance(rng, 0.3)) {
      c.dropout_rate = 0.3f;
      c.dropout_seed = seed;
    }
    if (test::chance(rng, 0.4)) {
      const auto extent = [&](std::int64_t full) {
        return test::chance(rng, 0.4) ? std::int64_t{1} : full;
      };
      c.bias = test::random_bias(rng, {extent(c.batch), extent(c.heads),
                                       extent(c.q_len), extent(c.kv_len)});
      for (double& value : c.bias->values) {
        if (test::chance(rng, 0.1)) {
          value = -std::numeric_limits<double>::infinity();
        }
      }
    }
    SCOPED_TRACE(seed);
    expect_exact<float>(c, {.threads = static_cast<int>(test::pick(rng, 1, 3))},
                        test::chance(rng, 0.3));
  }
}

}  // namespace
}  // namespace regard
