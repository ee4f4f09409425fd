// SPDX-License-Identifier: Apache-2.0
// What attention_backward refuses and in which words, that nothing is written
// then; what it does when gradients are not wanted, and when there is nothing
// to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "support/refusal.h"
#include "support/run_backward.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::BackwardCase;
using test::BackwardRun;
using test::Rng;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

AttentionCase small() {
  AttentionCase c = test::filled({.batch = 2,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .q_len = 3,
                                  .kv_len = 5,
                                  .d_k = 8,
                                  .d_v = 6});
  Rng rng(1);
  c.bias = test::random_bias(rng, {1, 4, 3, 5});
  c.alibi_slopes = c.sinks = c.head_scales = {1, 2, 3, 4};
  return c;
}

BackwardCase backward_of(const AttentionCase& c) {
  Rng rng(2);
  return test::backward_case(rng, c, true);
}

// The words in which a call is refused, which must then write nothing.
template <typename T>
std::string refusal_of(test::BackwardCall<T>& call) {
  const auto before = call.take();
  const std::string text = test::refusal(
      [&] { attention_backward(call.inputs, call.gradients, call.options); });
  if (text != "accepted") {
    EXPECT_EQ(test::different_bits(call.take(), before), "")
        << "gradients were written";
  }
  return text;
}

// Float runs the fused engine and double the plain loops: one contract.
template <typename T>
class BackwardRefusals : public ::testing::Test {
 protected:
  using Call = test::BackwardCall<T>;
  using Real = test::RealFor<T>;
  template <typename U, int Rank = 4>
  using View = TensorView<U, Rank>;

  // Of a good call after `change`.
  std::string refusal(const std::function<void(Call&)>& change) {
    const BackwardCase b = backward_of(small());
    Call call(b, {});
    change(call);
    return refusal_of(call);
  }

  std::vector<T> room_ = std::vector<T>(4096);
  std::vector<Real> real_room_ = std::vector<Real>(4096);
};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(BackwardRefusals, Reals);

TYPED_TEST(BackwardRefusals, NothingWrongIsAccepted) {
  EXPECT_EQ(this->refusal([](auto&) {}), "accepted");
}

TYPED_TEST(BackwardRefusals, WhatTheForwardPassRefusesUnderItsOwnName) {
  EXPECT_EQ(this->refusal([&](auto& call) {
    call.inputs.k = {this->room_.data(), {3, 2, 5, 8}};
  }),
            "attention_backward: q, k and v must have the same batch; q is "
            "[2, 4, 3, 8], k is [3, 2, 5, 8], v is [2, 2, 5, 6]");
  EXPECT_EQ(this->refusal([](auto& call) { call.options.softcap = -1; }),
            "attention_backward: softcap must be finite and not negative; it "
            "is -1");
  EXPECT_EQ(this->refusal([](auto& call) {
    call.options.mask = mask::lengths({1, 2, 3});
  }),
            "attention_backward: mask lengths need one key length for each "
            "batch entry; batch is 2, lengths are 3");
  EXPECT_EQ(this->refusal([&](auto& call) {
    call.options.log_sum_exp = {this->real_room_.data(), {2, 4, 4}};
  }),
            "attention_backward: log_sum_exp must be [batch, heads, q_len]; it "
            "is [2, 4, 4], q is [2, 4, 3, 8]");
}

TYPED_TEST(BackwardRefusals, AnOutputOrItsGradientOfAnotherShape) {
  EXPECT_EQ(this->refusal([&](auto& call) {
    call.inputs.out = {this->room_.data(), {2, 4, 3, 8}};
  }),
            "attention_backward: out and d_out must be [batch, heads, q_len, "
            "d_v]; out is [2, 4, 3, 8], d_out is [2, 4, 3, 6], q is "
            "[2, 4, 3, 8], v is [2, 2, 5, 6]");
  EXPECT_EQ(this->refusal([&](auto& call) {
    call.inputs.d_out = {this->room_.data(), {2, 4, 2, 6}};
  }),
            "attention_backward: out and d_out must be [batch, heads, q_len, "
            "d_v]; out is [2, 4, 3, 6], d_out is [2, 4, 2, 6], q is "
            "[2, 4, 3, 8], v is [2, 2, 5, 6]");
}

TYPED_TEST(BackwardRefusals, NoLogSumExp) {
  EXPECT_EQ(this->refusal([](auto& call) { call.options.log_sum_exp = {}; }),
            "attention_backward: options.log_sum_exp must hold what "
            "attention_forward wrote; it is null");
}

TYPED_TEST(BackwardRefusals, AGradientOfTheLogSumExpOfAnotherShape) {
  EXPECT_EQ(this->refusal([&](auto& call) {
    call.inputs.d_log_sum_exp = {this->real_room_.data(), {2, 3, 4}};
  }),
            "attention_backward: d_log_sum_exp must be [batch, heads, q_len]; "
            "it is [2, 3, 4], q is [2, 4, 3, 8]");
}

TYPED_TEST(BackwardRefusals, GradientsOfAnotherShape) {
  EXPECT_EQ(this->refusal([&](auto& call) {
    call.gradients.q = {this->room_.data(), {2, 4, 3, 6}};
  }),
            "attention_backward: the gradient of q must have its shape; the "
            "gradient is [2, 4, 3, 6], q is [2, 4, 3, 8]");
  EXPECT_EQ(this->refusal([&](auto& call) {
    call.gradients.k = {this->room_.data(), {2, 4, 5, 8}};
  }),
            "attention_backward: the gradient of k must have its shape; the "
            "gradient is [2, 4, 5, 8], k is [2, 2, 5, 8]");
  EXPECT_EQ(this->refusal([&](auto& call) {
    call.gradients.v = {this->room_.data(), {1, 2, 5, 6}};
  }),
            "attention_backward: the gradient of v must have its shape; the "
            "gradient is [1, 2, 5, 6], v is [2, 2, 5, 6]");
  EXPECT_EQ(this->refusal([&](auto& call) {
    call.gradients.bias = {this->real_room_.data(), {2, 4, 3, 5}};
  }),
            "attention_backward: the gradient of bias must have its shape; "
            "the gradient is [2, 4, 3, 5], bias is [1, 4, 3, 5]");
}

TYPED_TEST(BackwardRefusals, GradientsWhoseRowsOverlap) {
  EXPECT_EQ(this->refusal([&](auto& call) {
    call.gradients.k = {this->room_.data(), {2, 2, 5, 8}, {80, 0, 8, 1}};
  }),
            "attention_backward: the rows of the gradient of k must not "
            "overlap; its strides are [80, 0, 8, 1]");
  EXPECT_EQ(this->refusal([&](auto& call) {
    call.gradients.q = {this->room_.data(), {2, 4, 3, 8}, {96, 24, 7, 1}};
  }),
            "attention_backward: the rows of the gradient of q must not "
            "overlap; its strides are [96, 24, 7, 1]");
  // What relative_bias makes of a table is read; a gradient cannot be written
  // there.
  EXPECT_EQ(this->refusal([&](auto& call) {
    call.gradients.bias = {
        this->real_room_.data() + 2, {1, 4, 3, 5}, {0, 7, -1, 1}};
  }),
            "attention_backward: the rows of the gradient of bias must not "
            "overlap; its strides are [0, 7, -1, 1]");
}

TYPED_TEST(BackwardRefusals, AGradientOfABiasThatIsNotThere) {
  EXPECT_EQ(this->refusal([](auto& call) { call.options.bias = {}; }),
            "attention_backward: a gradient of bias needs a bias; there is "
            "none");
}

TYPED_TEST(BackwardRefusals, GradientsThatAreNotOneAHead) {
  const auto cut = [](auto& span) { span = span.first(3); };
  const auto text = [](const std::string& name) {
    return "attention_backward: the gradient of " + name +
           " must be as long as " + name + ", which is 4; it is 3";
  };
  EXPECT_EQ(
      this->refusal([&](auto& call) { cut(call.gradients.alibi_slopes); }),
      text("alibi_slopes"));
  EXPECT_EQ(this->refusal([&](auto& call) { cut(call.gradients.sinks); }),
            text("sinks"));
  EXPECT_EQ(this->refusal([&](auto& call) { cut(call.gradients.head_scales); }),
            text("head_scales"));
  EXPECT_EQ(this->refusal([](auto& call) { call.options.sinks = {}; }),
            "attention_backward: the gradient of sinks must be as long as "
            "sinks, which is 0; it is 4");
}

TYPED_TEST(BackwardRefusals, MasksThatDoNotFitPackedSequences) {
  AttentionCase c = test::packed_shape(small(), {3, 3}, {4, 6});
  c.bias.reset();
  const BackwardCase b = backward_of(test::filled(c, 3));
  test::BackwardCall<TypeParam> call(b, {});
  // The second sequence is at fault; the first must not be written.
  call.options.mask = mask::lengths({4, 7});
  EXPECT_THAT(refusal_of(call),
              StartsWith("attention_backward: a mask's key length must lie in "
                         "[0, 6]"));
  test::DenseBools pairs({1, 1, 1, 1});
  call.options.mask = mask::keep(pairs.view());
  EXPECT_THAT(refusal_of(call), AllOf(StartsWith("attention_backward: "),
                                      HasSubstr("packed sequences")));
}

// ---- what is wanted ----

template <typename T>
void expect_the_same_when_fewer_are_wanted() {
  for (const int threads : {1, 3}) {
    const BackwardCase b = test::rounded_to<T>(backward_of(small()));
    const auto all = test::run_backward<T>(b, {.threads = threads});
    for (int bits = 0; bits < 16; ++bits) {
      const BackwardRun run{.threads = threads,
                            .want_q = (bits & 1) != 0,
                            .want_k = (bits & 2) != 0,
                            .want_v = (bits & 4) != 0,
                            .want_rest = (bits & 8) != 0};
      auto some = test::run_backward<T>(b, run);
      const auto untouched = [](const auto& values) {
        return std::all_of(values.begin(), values.end(), [](auto value) {
          return std::isnan(test::to_double(value));
        });
      };
      const auto compare = [&](bool wanted, const auto& x, const auto& y) {
        EXPECT_TRUE(wanted ? test::same_bits(x, y) : untouched(x)) << bits;
      };
      compare(run.want_q, some.q, all.q);
      compare(run.want_k, some.k, all.k);
      compare(run.want_v, some.v, all.v);
      compare(run.want_rest, some.bias, all.bias);
      compare(run.want_rest, some.alibi_slopes, all.alibi_slopes);
      compare(run.want_rest, some.sinks, all.sinks);
      compare(run.want_rest, some.head_scales, all.head_scales);
    }
  }
}

TEST(BackwardWanted, IsWrittenAndTheRestIsNot) {
  expect_the_same_when_fewer_are_wanted<float>();
  expect_the_same_when_fewer_are_wanted<double>();
  expect_the_same_when_fewer_are_wanted<BFloat16>();
}

TEST(BackwardWanted, IsOverwrittenNotAddedTo) {
  const BackwardCase b = backward_of(small());
  test::BackwardCall<float> call(b, {});
  attention_backward(call.inputs, call.gradients, call.options);
  const auto once = call.take();
  attention_backward(call.inputs, call.gradients, call.options);
  EXPECT_EQ(test::different_bits(call.take(), once), "");
}

// d_out may be one row for all: the gradient of a sum is all ones.
TEST(BackwardViews, TheGradientOfTheOutputMayBeBroadcastByStrideZero) {
  BackwardCase b = backward_of(small());
  b.d_out.assign(b.d_out.size(), 1.0);
  const auto want = test::run_backward<float>(b);
  test::BackwardCall<float> call(b, {});
  const std::vector<float> ones(6, 1.0f);
  call.inputs.d_out = {ones.data(), {2, 4, 3, 6}, {0, 0, 0, 1}};
  attention_backward(call.inputs, call.gradients, call.options);
  EXPECT_EQ(test::different_bits(call.take(), want), "");
}

// ---- nothing to do ----

AttentionCase with_slopes_sinks_and_scales(const AttentionCase& shape) {
  AttentionCase c = test::filled(shape, 4);
  c.alibi_slopes = c.sinks = c.head_scales =
      std::vector<double>(static_cast<std::size_t>(c.heads), 0.5);
  return c;
}

template <typename T>
void expect_exact(const AttentionCase& c) {
  EXPECT_EQ(test::gradient_complaint<T>(backward_of(c)), "");
}

TEST(BackwardZeroSizes, AreTaken) {
  for (const auto& mask : {test::MaskSpec{}, test::causal_spec()}) {
    for (const AttentionCase& shape : test::empty_shapes()) {
      AttentionCase c = with_slopes_sinks_and_scales(shape);
      c.mask = mask;
      expect_exact<float>(c);
      expect_exact<double>(c);
      expect_exact<BFloat16>(c);
    }
  }
}

TEST(BackwardZeroSizes, OfABiasThatNobodyReadsGiveZero) {
  for (const AttentionCase& shape :
       {AttentionCase{2, 2, 2, 0, 4, 5, 6}, {0, 2, 2, 3, 4, 5, 6}}) {
    AttentionCase c = with_slopes_sinks_and_scales(shape);
    Rng rng(5);
    c.bias = test::random_bias(rng, {1, 2, 1, 4});
    EXPECT_EQ(test::run_backward<float>(backward_of(c)).bias,
              std::vector<float>(8, 0.0f));
    EXPECT_EQ(test::run_backward<double>(backward_of(c)).bias,
              std::vector<double>(8, 0.0));
  }
}

TEST(BackwardZeroSizes, ALogSumExpIsNeededWhereThereAreRows) {
  const BackwardCase b =
      backward_of(with_slopes_sinks_and_scales({1, 1, 1, 2, 0, 0, 3}));
  test::BackwardCall<float> call(b, {});
  call.options.log_sum_exp = {};
  EXPECT_EQ(refusal_of(call),
            "attention_backward: options.log_sum_exp must hold what "
            "attention_forward wrote; it is null");
}

TEST(BackwardZeroSizes, NullViewsOfNoElementsAreTaken) {
  attention_backward(BackwardInputs<float>{}, Gradients<float>{}, {});
  attention_backward(BackwardInputs<double>{}, Gradients<double>{}, {});
}

TEST(BackwardZeroSizes, PackedSequencesMayBeEmpty) {
  const AttentionCase shape{.heads = 2, .kv_heads = 2, .d_k = 3, .d_v = 3};
  const auto packed = [&](const std::vector<std::int64_t>& q_lens,
                          const std::vector<std::int64_t>& kv_lens) {
    return with_slopes_sinks_and_scales(
        test::packed_shape(shape, q_lens, kv_lens));
  };
  expect_exact<float>(packed({}, {}));
  expect_exact<float>(packed({0, 3, 2, 0}, {4, 0, 5, 0}));
  expect_exact<double>(packed({0, 3, 2, 0}, {4, 0, 5, 0}));
}

}  // namespace
}  // namespace regard
