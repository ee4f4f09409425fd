// SPDX-License-Identifier: Apache-2.0
// Every shape and every option against the reference: at most twice as far from
// the truth as a plain float loop is.
#include <gtest/gtest.h>

#include <vector>

#include "support/every_mask.h"
#include "support/expect_attention.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::expect_exact;
using test::filled;
using test::Layout;
using test::Rng;

class ForwardShapes : public ::testing::TestWithParam<AttentionCase> {};

TEST_P(ForwardShapes, AreAsExactAsTheDefinition) {
  expect_exact<float>(filled(GetParam()));
}

TEST_P(ForwardShapes, AreAsExactUnderACausalMask) {
  AttentionCase c = filled(GetParam());
  c.mask = test::causal_spec();
  expect_exact<float>(c);
}

TEST_P(ForwardShapes, AreAsExactInEveryStorageType) {
  const AttentionCase c = filled(GetParam());
  expect_exact<BFloat16>(c);
  expect_exact<Float16>(c);
  expect_exact<double>(c);
}

TEST_P(ForwardShapes, AreAsExactInEveryLayout) {
  const AttentionCase c = filled(GetParam());
  expect_exact<float>(c, {.q = Layout::kLengthFirst,
                          .kv = Layout::kLengthFirst,
                          .out = Layout::kLengthFirst});
  expect_exact<float>(c, {.q = Layout::kWithGaps,
                          .kv = Layout::kPackedInRows,
                          .out = Layout::kWithGaps});
  expect_exact<BFloat16>(c, {.q = Layout::kPackedInRows,
                             .kv = Layout::kWithGaps,
                             .out = Layout::kLengthFirst});
}

TEST_P(ForwardShapes, AreAsExactWithAllOptions) {
  AttentionCase c = filled(GetParam());
  Rng rng(2);
  test::add_all_options(rng, c);
  expect_exact<float>(c);
  expect_exact<Float16>(c);
  c.cosine = true;
  expect_exact<float>(c);
}

// Odd sizes around the tile and vector lengths, one dimension at a time.
std::vector<AttentionCase> shapes() {
  std::vector<AttentionCase> all;
  for (const std::int64_t keys : {1, 2, 7, 47, 48, 49, 59, 63, 64, 65, 95, 96,
                                  97, 127, 129, 1023, 1024, 1025, 2049}) {
    all.push_back({1, 2, 1, keys > 1000 ? 5 : 33, keys, 16, 16});
  }
  for (const std::int64_t queries :
       {2, 3, 7, 8, 15, 16, 17, 31, 32, 47, 48, 49, 64, 65, 97, 193}) {
    all.push_back({2, 2, 2, queries, 50, 24, 8});
  }
  const std::int64_t widths[] = {1,   2,   3,   5,   7,   8,   9,   12,  15, 16,
                                 24,  31,  32,  40,  48,  64,  65,  72,  80, 96,
                                 100, 127, 128, 160, 192, 256, 257, 1000};
  for (const std::int64_t width : widths) {
    all.push_back({1, 2, 2, 19, 53, width, 16});
    all.push_back({1, 2, 1, 19, 53, 16, width});
    all.push_back({1, 1, 1, 9, 21, width, width});
  }
  all.push_back({3, 6, 2, 21, 37, 40, 72});
  all.push_back({1, 8, 1, 1, 77, 64, 64});
  all.push_back({2, 12, 4, 1, 1100, 64, 32});
  all.push_back({2, 7, 7, 3, 30, 20, 20});
  all.push_back({7, 1, 1, 4, 6, 64, 64});
  all.push_back({1, 32, 8, 5, 40, 128, 128});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Odd, ForwardShapes, ::testing::ValuesIn(shapes()),
                         [](const auto& c) { return c.param.shape_name(); });

class ForwardMasks : public ::testing::TestWithParam<test::NamedMask> {};

TEST_P(ForwardMasks, AreAsExactAsTheDefinition) {
  for (const AttentionCase& shape :
       std::vector<AttentionCase>{{2, 4, 2, 70, 70, 16, 16},
                                  {3, 2, 1, 33, 130, 8, 24},
                                  {2, 2, 2, 120, 49, 40, 8},
                                  {2, 3, 3, 1, 200, 16, 16},
                                  {1, 2, 2, 6, 1500, 8, 8}}) {
    AttentionCase c = filled(shape);
    Rng rng(3);
    c.mask = GetParam().build(c.entry(0).sizes, rng);
    expect_exact<float>(c);
    expect_exact<BFloat16>(c);
    expect_exact<double>(c);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ForwardMasks,
                         ::testing::ValuesIn(test::every_mask()),
                         [](const auto& mask) { return mask.param.name; });

}  // namespace
}  // namespace regard
