// SPDX-License-Identifier: Apache-2.0
// Every shape and every option against the reference: at most twice as far from
// the truth as a plain float loop is.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "support/run_attention.h"

namespace regard {
namespace {

using test::AttentionCase;
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
void expect_exact(const AttentionCase& c, const test::RunOptions& run = {}) {
  const test::Judgement judgement = test::try_case<T>(c, run);
  EXPECT_TRUE(judgement.good())
      << c.describe() << "\n  " << judgement.describe();
}

class ForwardShapes : public ::testing::TestWithParam<ShapeParam> {};

TEST_P(ForwardShapes, AreAsExactAsTheDefinition) {
  expect_exact<float>(case_of(GetParam()));
}

TEST_P(ForwardShapes, AreAsExactUnderACausalMask) {
  AttentionCase c = case_of(GetParam());
  c.mask = test::causal_spec();
  expect_exact<float>(c);
}

TEST_P(ForwardShapes, AreAsExactInEveryStorageType) {
  const AttentionCase c = case_of(GetParam());
  expect_exact<BFloat16>(c);
  expect_exact<Float16>(c);
  expect_exact<double>(c);
}

TEST_P(ForwardShapes, AreAsExactInEveryLayout) {
  const AttentionCase c = case_of(GetParam());
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

// Everything at once, so that no option is only right alone.
TEST_P(ForwardShapes, AreAsExactWithAllOptions) {
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
  expect_exact<float>(c);
  expect_exact<Float16>(c);
  c.cosine = true;
  expect_exact<float>(c);
}

// Odd sizes around the tile and vector lengths, one dimension at a time.
std::vector<ShapeParam> shapes() {
  std::vector<ShapeParam> all;
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
  add("None", [](Case, Rng&) { return MaskSpec{}; });
  add("Causal", [](Case, Rng&) { return test::causal_spec(); });
  add("CausalTopLeft",
      [](Case, Rng&) { return test::causal_spec(mask::kTopLeft); });
  add("CausalBeforeAllKeys",
      [](Case, Rng&) { return test::causal_spec(mask::at_offset(-20)); });
  add("CausalAfterAllKeys", [](Case c, Rng&) {
    return test::causal_spec(mask::at_offset(c.kv_len));
  });
  add("WindowBothSides", [](Case, Rng&) { return test::window_spec(5, 3); });
  add("WindowLeftOnly", [](Case, Rng&) { return test::window_spec(17, -1); });
  add("WindowRightOnly", [](Case, Rng&) { return test::window_spec(-1, 50); });
  add("WindowOfOne", [](Case, Rng&) { return test::window_spec(0, 0); });
  add("CausalWindow", [](Case, Rng&) {
    return test::causal_spec() & test::window_spec(60, 0);
  });
  add("Prefix", [](Case, Rng&) { return test::prefix_spec(11); });
  add("PrefixOfZero", [](Case, Rng&) { return test::prefix_spec(0); });
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
  const auto dense = [](Case c, Rng& rng, test::Extents4 one) {
    DenseBools pairs({one[0] ? 1 : c.batch, one[1] ? 1 : c.heads,
                      one[2] ? 1 : c.q_len, one[3] ? 1 : c.kv_len});
    for (std::size_t n = 0; n < pairs.size(); ++n) {
      pairs.values[n] = test::chance(rng, 0.5);
    }
    return pairs;
  };
  for (int bits = 0; bits < 16; ++bits) {
    const test::Extents4 one{bits & 1, bits & 2, bits & 4, bits & 8};
    add("KeepBroadcast" + std::to_string(bits),
        [=](Case c, Rng& rng) { return test::keep_spec(dense(c, rng, one)); });
    add("DropBroadcast" + std::to_string(bits),
        [=](Case c, Rng& rng) { return test::drop_spec(dense(c, rng, one)); });
  }
  add("DenseCausalDocumentsLengths", [=](Case c, Rng& rng) {
    return test::keep_spec(dense(c, rng, {1, 0, 0, 0})) & test::causal_spec() &
           test::random_documents(rng, {c.batch, c.heads, c.q_len, c.kv_len}) &
           test::lengths_spec(test::random_lengths(rng, c.batch, c.kv_len));
  });
  add("KeepAndDrop", [=](Case c, Rng& rng) {
    return test::keep_spec(dense(c, rng, {0, 0, 0, 0})) &
           test::drop_spec(dense(c, rng, {1, 1, 1, 0}));
  });
  return all;
}

class ForwardMasks : public ::testing::TestWithParam<MaskParam> {};

TEST_P(ForwardMasks, AreAsExactAsTheDefinition) {
  for (const ShapeParam& shape :
       std::vector<ShapeParam>{{2, 4, 2, 70, 70, 16, 16},
                               {3, 2, 1, 33, 130, 8, 24},
                               {2, 2, 2, 120, 49, 40, 8},
                               {2, 3, 3, 1, 200, 16, 16},
                               {1, 2, 2, 6, 1500, 8, 8}}) {
    AttentionCase c = case_of(shape);
    Rng rng(3);
    c.mask = GetParam().build(c, rng);
    expect_exact<float>(c);
    expect_exact<BFloat16>(c);
    expect_exact<double>(c);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ForwardMasks, ::testing::ValuesIn(masks()),
                         [](const auto& mask) { return mask.param.name; });

}  // namespace
}  // namespace regard
