// SPDX-License-Identifier: Apache-2.0
// attention_with_weights: what attention_forward and attention_weights give, in
// one pass.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "regard/attention/weights.h"
#include "support/every_path.h"
#include "support/random_case.h"
#include "support/refusal.h"
#include "support/run_attention.h"
#include "support/weights_case.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::CallOptions;
using test::Layout;
using test::Produced;
using test::RealFor;
using test::Rng;
using test::Stored;
using test::Wanted;

// The inputs of a case in memory, and a request for everything.
template <typename T>
struct Call {
  using Real = RealFor<T>;

  Call(const AttentionCase& c, OverHeads heads, int threads = 1)
      : q(c.q_shape(), Layout::kLengthFirst, c.q),
        k(c.k_shape(), Layout::kWithGaps, c.k),
        v(c.v_shape(), Layout::kWithGaps, c.v),
        out(c.out_shape(), Layout::kWithGaps),
        lse(static_cast<std::size_t>(c.rows() * c.heads * c.q_len), Real{42}),
        options(c) {
    const std::int64_t batch = c.rows(),
                       many = heads == OverHeads::kMean ? 1 : c.heads;
    const auto sized = [](std::int64_t size) {
      return static_cast<std::size_t>(size);
    };
    parts.weights.assign(sized(batch * many * c.q_len * c.kv_len), Real{42});
    parts.entropy.assign(sized(batch * many * c.q_len), Real{42});
    parts.received.assign(sized(batch * many * c.kv_len), Real{42});
    request = {.heads = heads,
               .received = {parts.received.data(), {batch, many, c.kv_len}},
               .entropy = {parts.entropy.data(), {batch, many, c.q_len}}};
    if (!c.is_packed()) {
      request.weights = {parts.weights.data(),
                         {batch, many, c.q_len, c.kv_len}};
    }
    options.value.threads.count = threads;
  }

  void run() {
    options.value.log_sum_exp = {
        lse.data(),
        {out.view().extent(0), out.view().extent(1), out.view().extent(2)}};
    attention_with_weights(q.const_view(), k.const_view(), v.const_view(),
                           out.view(), request, options.value);
  }
  void run_apart() {
    options.value.log_sum_exp = {
        lse.data(),
        {out.view().extent(0), out.view().extent(1), out.view().extent(2)}};
    attention_forward(q.const_view(), k.const_view(), v.const_view(),
                      out.view(), options.value);
    options.value.log_sum_exp = {};
    attention_weights(q.const_view(), k.const_view(), request, options.value);
  }

  Stored<T> q, k, v, out;
  std::vector<Real> lse;
  test::Parts<Real> parts;
  BasicWeightsRequest<Real> request;
  CallOptions<Real> options;
};

template <typename Real>
void expect_same_weights(const std::vector<Real>& got,
                         const std::vector<Real>& wanted, const char* what) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool same = std::memcmp(&got[i], &wanted[i], sizeof(Real)) == 0 ||
                      (std::isnan(got[i]) && std::isnan(wanted[i])) ||
                      std::abs(got[i] - wanted[i]) < Real(1e-36);
    ASSERT_TRUE(same) << what << "[" << i << "] is " << got[i] << ", alone "
                      << wanted[i];
  }
}

template <typename T>
void expect_what_they_give_apart(const AttentionCase& unrounded,
                                 OverHeads heads) {
  const AttentionCase c = test::rounded_to<T>(unrounded);
  SCOPED_TRACE(c.describe());
  Call<T> once(c, heads), apart(c, heads);
  once.run();
  apart.run_apart();
  EXPECT_TRUE(test::same_bits(once.out.elements(), apart.out.elements()));
  EXPECT_TRUE(once.out.gaps_are_untouched(c.out_shape(), Layout::kWithGaps));
  EXPECT_TRUE(test::same_bits(once.lse, apart.lse));
  expect_same_weights(once.parts.weights, apart.parts.weights, "weights");
  expect_same_weights(once.parts.received, apart.parts.received, "received");
  expect_same_weights(once.parts.entropy, apart.parts.entropy, "entropy");
}

template <typename T>
class WithWeights : public testing::Test {};
using Types = testing::Types<float, BFloat16, Float16, double>;
TYPED_TEST_SUITE(WithWeights, Types);

TYPED_TEST(WithWeights, AreWhatForwardAndWeightsGiveApart) {
  test::on_every_simd_target([&](const std::string&) {
    Rng rng(7);
    for (int i = 0; i < 60; ++i) {
      const AttentionCase c = test::random_case(rng);
      SCOPED_TRACE("case " + std::to_string(i));
      expect_what_they_give_apart<TypeParam>(
          c, i % 2 == 0 ? OverHeads::kEach : OverHeads::kMean);
      if (this->HasFailure()) return;
    }
  });
}

// Every block of keys has a maximum of its own, far above the one before.
TYPED_TEST(WithWeights, FollowMaximaThatRiseFromKeyToKey) {
  AttentionCase c = test::weights_case(50, 2100);
  Rng rng(3);
  c.bias = test::random_bias(rng, {1, 1, 1, c.kv_len});
  for (std::int64_t j = 0; j < c.kv_len; ++j) {
    c.bias->values[static_cast<std::size_t>(j)] += 0.07 * double(j);
  }
  expect_what_they_give_apart<TypeParam>(c, OverHeads::kEach);
  expect_what_they_give_apart<TypeParam>(c, OverHeads::kMean);
}

TYPED_TEST(WithWeights, ShowPoisonWhereForwardAndWeightsShowIt) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double poison : {nan, inf, -inf}) {
    for (const int where : {0, 1, 2}) {
      AttentionCase c = test::weights_case(60, 130);
      c.mask = test::causal_spec();
      auto& values = where == 0 ? c.q : where == 1 ? c.k : c.v;
      values[values.size() / 3] = poison;
      SCOPED_TRACE(std::to_string(poison) + " in " + "qkv"[where]);
      expect_what_they_give_apart<TypeParam>(c, OverHeads::kEach);
      expect_what_they_give_apart<TypeParam>(c, OverHeads::kMean);
    }
  }
}

TYPED_TEST(WithWeights, GiveEntropyAndWhatKeysReceiveOfPackedSequences) {
  expect_what_they_give_apart<TypeParam>(test::packed_weights_case(),
                                         OverHeads::kEach);
  expect_what_they_give_apart<TypeParam>(test::packed_weights_case(),
                                         OverHeads::kMean);
}

// Where products underflow, it shows in which order they are scaled.
TYPED_TEST(WithWeights, GiveTheSameOutOfTinyValues) {
  AttentionCase c = test::weights_case(70, 300);
  c.mask = test::causal_spec();
  for (double& x : c.q) x *= 8;
  for (double& x : c.v) x *= 1e-36;
  expect_what_they_give_apart<TypeParam>(test::rounded_to<TypeParam>(c),
                                         OverHeads::kEach);
}

TYPED_TEST(WithWeights, DoNotDependOnThreads) {
  const AttentionCase c =
      test::rounded_to<TypeParam>(test::weights_case(130, 300));
  for (const OverHeads heads : {OverHeads::kEach, OverHeads::kMean}) {
    Call<TypeParam> one(c, heads, 1), many(c, heads, 3);
    one.run();
    many.run();
    EXPECT_TRUE(test::same_bits(one.out.elements(), many.out.elements()));
    EXPECT_TRUE(test::same_bits(one.parts.weights, many.parts.weights));
    EXPECT_TRUE(test::same_bits(one.parts.received, many.parts.received));
  }
}

TYPED_TEST(WithWeights, GiveOutAloneWhereNothingIsAskedFor) {
  const AttentionCase c =
      test::rounded_to<TypeParam>(test::weights_case(20, 30));
  Call<TypeParam> nothing(c, OverHeads::kEach), apart(c, OverHeads::kEach);
  nothing.request = {};
  nothing.run();
  apart.run_apart();
  EXPECT_TRUE(test::same_bits(nothing.out.elements(), apart.out.elements()));
  EXPECT_TRUE(test::same_bits(nothing.lse, apart.lse));
}

TEST(AttentionWithWeights, AreAsExactAsTheDefinition) {
  for (const std::int64_t keys : {0, 1, 7, 48, 97, 1025}) {
    const AttentionCase c =
        test::rounded_to<float>(test::weights_case(50, keys));
    Call<float> call(c, OverHeads::kEach);
    call.run();
    const auto exact = test::reference_attention<double>(c);
    const auto plain = test::reference_attention<float>(c);
    const auto out =
        test::measure(call.out.elements(), exact.out, plain.out, "out");
    const auto weights = test::measure(call.parts.weights, exact.weights,
                                       plain.weights, "weights");
    EXPECT_TRUE(out.within()) << keys << " keys: " << out.describe();
    EXPECT_TRUE(weights.within()) << keys << " keys: " << weights.describe();
  }
}

TEST(AttentionWithWeights, InBf16HaveTheOutOfBf16AndTheWeightsOfFloat) {
  const AttentionCase c = test::rounded_to<float>(test::weights_case(40, 70));
  Call<float> once(c, OverHeads::kEach), apart(c, OverHeads::kEach),
      in_float(c, OverHeads::kEach);
  once.options.value.compute = Compute::kBFloat16;
  apart.options.value.compute = Compute::kBFloat16;
  once.run();
  apart.run_apart();
  in_float.run();
  EXPECT_TRUE(test::same_bits(once.out.elements(), apart.out.elements()));
  EXPECT_FALSE(test::same_bits(once.out.elements(), in_float.out.elements()));
  expect_same_weights(once.parts.weights, in_float.parts.weights, "weights");
}

template <typename Change>
std::string refusal(const Change& change) {
  const AttentionCase c = test::rounded_to<float>(test::weights_case(3, 5));
  Call<float> call(c, OverHeads::kEach);
  const auto untouched = call.parts.weights;
  change(call);
  const std::string text = test::refusal([&] { call.run(); });
  EXPECT_EQ(call.parts.weights, untouched);
  EXPECT_TRUE(std::isnan(call.out.elements()[0]));
  return text;
}

TEST(AttentionWithWeights, RefuseChosenRows) {
  const std::vector<std::int64_t> rows{1, 2};
  EXPECT_EQ(refusal([&](Call<float>& call) { call.request.rows = rows; }),
            "attention_with_weights: rows must be empty, because out has a row "
            "for every query; rows has 2");
}

TEST(AttentionWithWeights, RefuseWeightsOfAnotherShape) {
  EXPECT_EQ(
      refusal([](Call<float>& call) { call.request.heads = OverHeads::kMean; }),
      "attention_with_weights: weights must be [2, 1, 3, 5]; it is "
      "[2, 4, 3, 5]");
}

}  // namespace
}  // namespace regard
