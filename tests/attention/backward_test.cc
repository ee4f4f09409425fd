// SPDX-License-Identifier: Apache-2.0
// The fused backward pass in every shape and under every option against the
// reference: at most twice as far from the truth as a plain float loop is.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/run_backward.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::BackwardRun;
using test::DenseBools;
using test::Layout;
using test::MaskSpec;
using test::Rng;

struct ShapeParam {
  std::int64_t batch, heads, kv_heads, q_len, kv_len, d_k, d_v;
};

std::string name_of(const ::testing::TestParamInfo<ShapeParam>& info) {
  const ShapeParam& s = info.param;
  const auto n = [](std::int64_t value) { return std::to_string(value); };
  return "b" + n(s.batch) + "_h" + n(s.heads) + "kv" + n(s.kv_heads) + "_q" +
         n(s.q_len) + "_k" + n(s.kv_len) + "_d" + n(s.d_k) + "x" + n(s.d_v);
}

AttentionCase case_of(const ShapeParam& s, std::uint64_t seed = 1) {
  AttentionCase c{.batch = s.batch,
                  .heads = s.heads,
                  .kv_heads = s.kv_heads,
                  .q_len = s.q_len,
                  .kv_len = s.kv_len,
                  .d_k = s.d_k,
                  .d_v = s.d_v};
  Rng rng(seed);
  test::fill_inputs(rng, c);
  return c;
}

template <typename T>
void expect_exact(const AttentionCase& c, const BackwardRun& run = {},
                  bool with_d_lse = false) {
  Rng rng(9);
  EXPECT_EQ(
      test::gradient_complaint<T>(test::backward_case(rng, c, with_d_lse), run),
      "");
}

class BackwardShapes : public ::testing::TestWithParam<ShapeParam> {};

TEST_P(BackwardShapes, AreAsExactAsTheDefinition) {
  expect_exact<float>(case_of(GetParam()));
}

TEST_P(BackwardShapes, AreAsExactUnderACausalMask) {
  AttentionCase c = case_of(GetParam());
  c.mask = test::causal_spec();
  expect_exact<float>(c, {}, true);
}

TEST_P(BackwardShapes, AreAsExactInEveryStorageType) {
  const AttentionCase c = case_of(GetParam());
  expect_exact<BFloat16>(c);
  expect_exact<Float16>(c);
  expect_exact<double>(c);
}

// Everything at once, so that no option is only right alone.
TEST_P(BackwardShapes, AreAsExactWithAllOptions) {
  AttentionCase c = case_of(GetParam());
  Rng rng(2);
  c.mask = test::causal_spec(mask::at_offset(c.kv_len / 2)) &
           test::keep_spec(
               test::random_bools(rng, {c.batch, c.heads, c.q_len, c.kv_len}));
  c.head_scales = test::normal_values(rng, c.heads);
  c.bias = test::random_bias(rng, {c.batch, 1, c.q_len, c.kv_len});
  c.alibi_slopes = test::normal_values(rng, c.heads, 0.1);
  c.softcap = 3;
  c.sinks = test::normal_values(rng, c.heads);
  c.dropout_rate = 0.2f;
  c.dropout_seed = 0x123456789abcdefull;
  expect_exact<float>(c, {.threads = 2}, true);
  expect_exact<BFloat16>(c, {}, true);
  c.cosine = true;
  expect_exact<float>(c, {}, true);
}

// Odd sizes around the tiles: 48 rows, 96 keys, 16 columns.
std::vector<ShapeParam> shapes() {
  std::vector<ShapeParam> all;
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
                         name_of);

struct MaskParam {
  std::string name;
  std::function<MaskSpec(const AttentionCase&, Rng&)> build;
};

std::vector<MaskParam> masks() {
  std::vector<MaskParam> all;
  const auto add = [&](std::string name, auto build) {
    all.push_back({std::move(name), build});
  };
  using Case = const AttentionCase&;
  add("Causal", [](Case, Rng&) { return test::causal_spec(); });
  add("CausalTopLeft",
      [](Case, Rng&) { return test::causal_spec(mask::kTopLeft); });
  add("CausalBeforeAllKeys",
      [](Case, Rng&) { return test::causal_spec(mask::at_offset(-20)); });
  add("WindowBothSides", [](Case, Rng&) { return test::window_spec(5, 3); });
  add("WindowLeftOnly", [](Case, Rng&) { return test::window_spec(17, -1); });
  add("WindowRightOnly", [](Case, Rng&) { return test::window_spec(-1, 50); });
  add("WindowOfOne", [](Case, Rng&) { return test::window_spec(0, 0); });
  add("CausalWindow", [](Case, Rng&) {
    return test::causal_spec() & test::window_spec(60, 0);
  });
  add("Prefix", [](Case, Rng&) { return test::prefix_spec(11); });
  add("Lengths", [](Case c, Rng& rng) {
    return test::lengths_spec(test::random_lengths(rng, c.batch, c.kv_len));
  });
  add("LengthsOfZero", [](Case c, Rng&) {
    return test::lengths_spec(
        std::vector<std::int64_t>(static_cast<std::size_t>(c.batch), 0));
  });
  add("LengthsOfQueriesToo", [](Case c, Rng& rng) {
    return test::lengths_spec(test::random_lengths(rng, c.batch, c.kv_len),
                              test::random_lengths(rng, c.batch, c.q_len));
  });
  add("Documents", [](Case c, Rng& rng) {
    return test::random_documents(rng, {c.batch, c.heads, c.q_len, c.kv_len});
  });
  const auto dense = [](Case c, Rng& rng, int bits) {
    DenseBools pairs({bits & 1 ? 1 : c.batch, bits & 2 ? 1 : c.heads,
                      bits & 4 ? 1 : c.q_len, bits & 8 ? 1 : c.kv_len});
    for (std::size_t n = 0; n < pairs.size(); ++n) {
      pairs.values[n] = test::chance(rng, 0.5);
    }
    return pairs;
  };
  for (int bits = 0; bits < 16; ++bits) {
    add("KeepBroadcast" + std::to_string(bits),
        [=](Case c, Rng& rng) { return test::keep_spec(dense(c, rng, bits)); });
  }
  add("Drop",
      [=](Case c, Rng& rng) { return test::drop_spec(dense(c, rng, 0)); });
  add("DenseCausalDocumentsLengths", [=](Case c, Rng& rng) {
    return test::keep_spec(dense(c, rng, 1)) & test::causal_spec() &
           test::random_documents(rng, {c.batch, c.heads, c.q_len, c.kv_len}) &
           test::lengths_spec(test::random_lengths(rng, c.batch, c.kv_len));
  });
  add("KeepAndDrop", [=](Case c, Rng& rng) {
    return test::keep_spec(dense(c, rng, 0)) &
           test::drop_spec(dense(c, rng, 7));
  });
  return all;
}

class BackwardMasks : public ::testing::TestWithParam<MaskParam> {};

TEST_P(BackwardMasks, AreAsExactAsTheDefinition) {
  for (const ShapeParam& shape :
       std::vector<ShapeParam>{{2, 4, 2, 70, 70, 16, 16},
                               {3, 2, 1, 33, 230, 8, 24},
                               {2, 2, 2, 160, 49, 40, 8},
                               {2, 3, 3, 1, 200, 16, 16}}) {
    AttentionCase c = case_of(shape);
    Rng rng(3);
    c.mask = GetParam().build(c, rng);
    expect_exact<float>(c, {.threads = 2});
    expect_exact<BFloat16>(c);
  }
}

INSTANTIATE_TEST_SUITE_P(All, BackwardMasks, ::testing::ValuesIn(masks()),
                         [](const auto& mask) { return mask.param.name; });

// One test a shape of the bias: bits tell which extents are 1.
class BackwardBias : public ::testing::TestWithParam<int> {};

TEST_P(BackwardBias, IsSummedOverEveryExtentThatIsOne) {
  const int bits = GetParam();
  for (const ShapeParam& shape :
       std::vector<ShapeParam>{{2, 4, 2, 70, 110, 16, 16},
                               {3, 5, 1, 33, 200, 8, 8},
                               {1, 2, 2, 101, 301, 8, 8}}) {
    AttentionCase c = case_of(shape);
    Rng rng(4);
    c.bias = test::random_bias(
        rng, {bits & 1 ? 1 : c.batch, bits & 2 ? 1 : c.heads,
              bits & 4 ? 1 : c.q_len, bits & 8 ? 1 : c.kv_len});
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
  const AttentionCase c = case_of({2, 4, 2, 70, 110, 24, 40});
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
  AttentionCase c = case_of({6, 4, 2, 157, 252, 16, 24});
  c.q_offsets = {0, 7, 7, 8, 57, 60, 157};
  c.kv_offsets = {0, 7, 12, 72, 121, 121, 252};
  Rng rng(5);
  test::fill_inputs(rng, c);
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
  AttentionCase c = case_of({1, 2, 2, 60, 130, 32, 16});
  Rng rng(6);
  test::fill_inputs(rng, c, 5);
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
    AttentionCase c = case_of({test::pick(rng, 1, 3), 4, 2,
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
