// SPDX-License-Identifier: Apache-2.0
// What attention_forward and attention_weights refuse, in which words, and that
// nothing is written then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "regard/attention/attention.h"
#include "regard/attention/weights.h"
#include "support/mask_spec.h"
#include "support/refusal.h"

namespace regard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Shape4 = std::array<std::int64_t, 4>;

template <typename Real>
struct Call {
  Shape4 q{2, 4, 3, 8};
  Shape4 k{2, 2, 5, 8};
  Shape4 v{2, 2, 5, 6};
  Shape4 out{2, 4, 3, 6};
  std::optional<Shape4> out_strides{};
  BasicAttentionOptions<Real> options{};
};

constexpr std::size_t kRoom = 4096;

// The words in which the call is refused, which must then write nothing.
template <typename Real>
std::string forward(const Call<Real>& call) {
  const std::vector<Real> in(kRoom, Real{1});
  std::vector<Real> out(kRoom, Real{42});
  TensorView<Real, 4> to(out.data(), call.out);
  if (call.out_strides) to = {out.data(), call.out, *call.out_strides};
  const std::string text = test::refusal([&] {
    attention_forward(TensorView<const Real, 4>(in.data(), call.q),
                      TensorView<const Real, 4>(in.data(), call.k),
                      TensorView<const Real, 4>(in.data(), call.v), to,
                      call.options);
  });
  if (text != "accepted") {
    EXPECT_EQ(out, std::vector<Real>(kRoom, Real{42})) << "out was written";
  }
  return text;
}

// Float runs the fused engine and double the plain loops: one contract.
template <typename Real>
class Refusals : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Refusals, Reals);

TYPED_TEST(Refusals, NothingWrongIsAccepted) {
  EXPECT_EQ(forward(Call<TypeParam>{}), "accepted");
}

TYPED_TEST(Refusals, BatchesThatDiffer) {
  EXPECT_EQ(forward(Call<TypeParam>{.k = {3, 2, 5, 8}}),
            "attention_forward: q, k and v must have the same batch; q is "
            "[2, 4, 3, 8], k is [3, 2, 5, 8], v is [2, 2, 5, 6]");
  EXPECT_EQ(forward(Call<TypeParam>{.v = {1, 2, 5, 6}}),
            "attention_forward: q, k and v must have the same batch; q is "
            "[2, 4, 3, 8], k is [2, 2, 5, 8], v is [1, 2, 5, 6]");
}

TYPED_TEST(Refusals, HeadsThatDoNotDivide) {
  EXPECT_EQ(forward(Call<TypeParam>{.k = {2, 3, 5, 8}, .v = {2, 3, 5, 6}}),
            "attention_forward: kv_heads must divide heads; q is [2, 4, 3, 8], "
            "k is [2, 3, 5, 8]");
  EXPECT_EQ(forward(Call<TypeParam>{.k = {2, 0, 5, 8}, .v = {2, 0, 5, 6}}),
            "attention_forward: kv_heads must divide heads; q is [2, 4, 3, 8], "
            "k is [2, 0, 5, 8]");
}

TYPED_TEST(Refusals, WidthsOfQueryAndKeyThatDiffer) {
  EXPECT_EQ(forward(Call<TypeParam>{.k = {2, 2, 5, 7}}),
            "attention_forward: q and k must have the same last extent; q is "
            "[2, 4, 3, 8], k is [2, 2, 5, 7]");
}

TYPED_TEST(Refusals, KeysAndValuesThatDiffer) {
  EXPECT_EQ(forward(Call<TypeParam>{.v = {2, 2, 4, 6}}),
            "attention_forward: k and v must have the same heads and length; "
            "k is [2, 2, 5, 8], v is [2, 2, 4, 6]");
  EXPECT_EQ(forward(Call<TypeParam>{.v = {2, 1, 5, 6}}),
            "attention_forward: k and v must have the same heads and length; "
            "k is [2, 2, 5, 8], v is [2, 1, 5, 6]");
}

TYPED_TEST(Refusals, NoWidthToScore) {
  EXPECT_EQ(forward(Call<TypeParam>{.q = {2, 4, 3, 0}, .k = {2, 2, 5, 0}}),
            "attention_forward: d_k must be positive where there are keys to "
            "score; q is [2, 4, 3, 0]");
}

TYPED_TEST(Refusals, AnOutputOfAnotherShape) {
  EXPECT_EQ(forward(Call<TypeParam>{.out = {2, 4, 3, 8}}),
            "attention_forward: out must be [batch, heads, q_len, d_v]; out is "
            "[2, 4, 3, 8], q is [2, 4, 3, 8], v is [2, 2, 5, 6]");
}

TYPED_TEST(Refusals, AnOutputWhoseRowsOverlap) {
  EXPECT_EQ(forward(Call<TypeParam>{.out_strides = Shape4{72, 0, 6, 1}}),
            "attention_forward: the rows of out must not overlap; its strides "
            "are [72, 0, 6, 1]");
  EXPECT_EQ(forward(Call<TypeParam>{.out_strides = Shape4{72, 18, 5, 1}}),
            "attention_forward: the rows of out must not overlap; its strides "
            "are [72, 18, 5, 1]");
  EXPECT_EQ(forward(Call<TypeParam>{.out_strides = Shape4{72, 6, 24, 1}}),
            "accepted");
  std::vector<TypeParam> sums(kRoom);
  Call<TypeParam> call;
  call.options.log_sum_exp = {sums.data(), {2, 4, 3}, {0, 3, 1}};
  EXPECT_EQ(forward(call),
            "attention_forward: the rows of log_sum_exp must not overlap; its "
            "strides are [0, 3, 1]");
  call.options.log_sum_exp = {sums.data(), {2, 4, 3}, {12, 1, 1}};
  EXPECT_EQ(forward(call),
            "attention_forward: the rows of log_sum_exp must not overlap; its "
            "strides are [12, 1, 1]");
}

TYPED_TEST(Refusals, AScaleThatIsNotFinite) {
  Call<TypeParam> call;
  call.options.scale = std::numeric_limits<TypeParam>::infinity();
  EXPECT_EQ(forward(call),
            "attention_forward: scale must be finite; it is inf");
}

TYPED_TEST(Refusals, ValuesThatAreNotOneAHead) {
  const std::vector<TypeParam> three(3, TypeParam{1});
  for (const char* name : {"head_scales", "alibi_slopes", "sinks"}) {
    Call<TypeParam> call;
    if (name == std::string("head_scales")) call.options.head_scales = three;
    if (name == std::string("alibi_slopes")) call.options.alibi_slopes = three;
    if (name == std::string("sinks")) call.options.sinks = three;
    EXPECT_EQ(forward(call), "attention_forward: " + std::string(name) +
                                 " must hold one value per head; heads is 4, "
                                 "values are 3");
  }
}

TYPED_TEST(Refusals, ASoftcapThatIsNegativeOrNotFinite) {
  Call<TypeParam> call;
  call.options.softcap = -1;
  EXPECT_EQ(forward(call),
            "attention_forward: softcap must be finite and not negative; it "
            "is -1");
  call.options.softcap = std::numeric_limits<TypeParam>::quiet_NaN();
  EXPECT_THAT(forward(call),
              StartsWith("attention_forward: softcap must be finite and not "
                         "negative; it is "));
}

TYPED_TEST(Refusals, ADropoutRateOutsideOfItsRange) {
  for (const float rate :
       {1.0f, -0.1f, std::numeric_limits<float>::quiet_NaN()}) {
    Call<TypeParam> call;
    call.options.dropout.rate = rate;
    EXPECT_THAT(forward(call),
                StartsWith("attention_forward: the dropout rate must be in "
                           "[0, 1); it is "));
  }
}

TYPED_TEST(Refusals, ABiasThatFitsNothing) {
  const std::vector<TypeParam> values(kRoom);
  Call<TypeParam> call;
  call.options.bias = {values.data(), {2, 2, 3, 5}};
  EXPECT_EQ(forward(call),
            "attention_forward: each extent of bias must be 1 or that of "
            "[batch, heads, q_len, kv_len]; bias is [2, 2, 3, 5], they are "
            "[2, 4, 3, 5]");
  call.options.bias = {values.data(), {1, 1, 1, 6}};
  EXPECT_NE(forward(call), "accepted");
}

TYPED_TEST(Refusals, ALogSumExpOfAnotherShape) {
  std::vector<TypeParam> values(kRoom);
  Call<TypeParam> call;
  call.options.log_sum_exp = {values.data(), {2, 4, 4}};
  EXPECT_EQ(forward(call),
            "attention_forward: log_sum_exp must be [batch, heads, q_len]; it "
            "is [2, 4, 4], q is [2, 4, 3, 8]");
}

TYPED_TEST(Refusals, AMaskThatDoesNotFit) {
  Call<TypeParam> call;
  call.options.mask = mask::lengths({1, 2, 3});
  EXPECT_EQ(forward(call),
            "attention_forward: mask lengths need one key length for each "
            "batch entry; batch is 2, lengths are 3");
  const std::vector<std::int32_t> ids{1, 2, 1, 1, 1};
  call.options.mask = mask::documents(std::span(ids).first(3), ids);
  EXPECT_EQ(forward(call),
            "attention_forward: the keys of one document must stand together; "
            "key 2 belongs to a document that ended before it");
}

// Sequences of 1 and 2 queries, 2 and 3 keys.
template <typename Real>
Call<Real> packed() {
  static const std::vector<std::int64_t> q_offsets{0, 1, 3};
  static const std::vector<std::int64_t> kv_offsets{0, 2, 5};
  Call<Real> call{.q = {1, 4, 3, 8},
                  .k = {1, 2, 5, 8},
                  .v = {1, 2, 5, 6},
                  .out = {1, 4, 3, 6}};
  call.options.sequences = {.q_offsets = q_offsets, .kv_offsets = kv_offsets};
  return call;
}

TYPED_TEST(Refusals, PackedSequencesInABatch) {
  EXPECT_EQ(forward(packed<TypeParam>()), "accepted");
  Call<TypeParam> call;
  call.options.sequences = packed<TypeParam>().options.sequences;
  EXPECT_EQ(forward(call),
            "attention_forward: packed sequences need a batch of 1; q is "
            "[2, 4, 3, 8]");
}

TYPED_TEST(Refusals, OffsetsThatDoNotFit) {
  const auto refusal = [](std::vector<std::int64_t> q_offsets) {
    Call<TypeParam> call = packed<TypeParam>();
    call.options.sequences.q_offsets = q_offsets;
    return forward(call);
  };
  EXPECT_EQ(refusal({0, 1, 2}),
            "attention_forward: sequences.q_offsets must start at 0 and end "
            "at the packed length; it starts at 0 and ends at 2, the length "
            "is 3");
  EXPECT_THAT(refusal({1, 1, 3}), HasSubstr("it starts at 1"));
  EXPECT_EQ(refusal({0, 4, 3}),
            "attention_forward: sequences.q_offsets must never fall");
  EXPECT_EQ(refusal({0, 3}),
            "attention_forward: q_offsets and kv_offsets must be equally "
            "long; they have 2 and 3");
  EXPECT_EQ(refusal({}),
            "attention_forward: sequences.q_offsets must hold one more entry "
            "than there are sequences; it has 0");
}

TYPED_TEST(Refusals, LengthsThatDoNotFitAPackedSequence) {
  Call<TypeParam> call = packed<TypeParam>();
  call.options.mask = mask::lengths({2, 3});
  EXPECT_EQ(forward(call), "accepted");
  // The second sequence has three keys; the first must not be written.
  call.options.mask = mask::lengths({2, 4});
  EXPECT_THAT(forward(call),
              AllOf(StartsWith("attention_forward: a mask's key length must "
                               "lie in [0, 3]"),
                    HasSubstr("is 4")));
}

TYPED_TEST(Refusals, DenseAndDocumentMasksOfPackedSequences) {
  Call<TypeParam> call = packed<TypeParam>();
  test::DenseBools pairs({1, 1, 1, 1});
  call.options.mask = mask::keep(pairs.view());
  EXPECT_THAT(forward(call), AllOf(StartsWith("attention_forward: "),
                                   HasSubstr("packed sequences")));
  const std::vector<std::int32_t> ids{1, 1, 1};
  call.options.mask = mask::documents(ids);
  EXPECT_THAT(forward(call), StartsWith("attention_forward: "));
}

TYPED_TEST(Refusals, ABiasSmallerThanTheLongestSequence) {
  const std::vector<TypeParam> values(kRoom);
  Call<TypeParam> call = packed<TypeParam>();
  call.options.bias = {values.data(), {2, 4, 2, 3}};
  EXPECT_EQ(forward(call), "accepted");
  call.options.bias = {values.data(), {2, 4, 3, 8}};
  EXPECT_EQ(forward(call), "accepted");
  call.options.bias = {values.data(), {2, 4, 2, 2}};
  EXPECT_THAT(forward(call),
              StartsWith("attention_forward: each extent of bias must be 1 or "
                         "that of"));
}

std::string weights(Shape4 q, Shape4 k, Shape4 w,
                    const AttentionOptions& options = {}) {
  const std::vector<float> in(kRoom, 1.0f);
  std::vector<float> out(kRoom, 42.0f);
  const std::string text = test::refusal([&] {
    attention_weights(TensorView<const float, 4>(in.data(), q),
                      TensorView<const float, 4>(in.data(), k),
                      TensorView<float, 4>(out.data(), w), options);
  });
  if (text != "accepted") {
    EXPECT_EQ(out, std::vector<float>(kRoom, 42.0f)) << "weights were written";
  }
  return text;
}

TEST(WeightsRefusals, WeightsOfAnotherShape) {
  EXPECT_EQ(weights({1, 2, 3, 4}, {1, 2, 5, 4}, {1, 2, 3, 5}), "accepted");
  EXPECT_EQ(weights({1, 2, 3, 4}, {1, 2, 5, 4}, {1, 2, 5, 3}),
            "attention_weights: weights must be [1, 2, 3, 5]; it is "
            "[1, 2, 5, 3]");
  const std::vector<float> in(kRoom, 1.0f);
  const TensorView<const float, 4> q(in.data(), {1, 2, 3, 4});
  EXPECT_EQ(
      test::refusal([&] { attention_weights(q, q, TensorView<float, 4>{}); }),
      "attention_weights: weights must not be null");
}

TEST(WeightsRefusals, PackedSequencesAndMasksThatDoNotFit) {
  AttentionOptions options;
  options.mask = mask::prefix(-2);
  EXPECT_EQ(weights({1, 2, 3, 4}, {1, 2, 5, 4}, {1, 2, 3, 5}, options),
            "attention_weights: the prefix of a mask must not be negative; it "
            "is -2");
  options.mask = {};
  options.sequences = packed<float>().options.sequences;
  EXPECT_THAT(
      weights({1, 2, 3, 4}, {1, 2, 5, 4}, {1, 2, 3, 5}, options),
      AllOf(StartsWith("attention_weights: "), HasSubstr("packed sequences")));
}

}  // namespace
}  // namespace regard
