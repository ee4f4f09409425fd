// SPDX-License-Identifier: Apache-2.0
// What attention_weights gives without all of the weights: chosen rows, the
// largest of each row, what keys receive, and entropy.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "regard/attention/weights.h"
#include "support/every_path.h"
#include "support/weights_case.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::Expected;
using test::ExpectedRow;
using test::Parts;
using test::Rng;
using test::run_parts;
using test::Wanted;
using test::weights_case;

// Keys by weight, ties to the lower; weights above 0 only.
template <typename Real>
std::vector<std::int64_t> sorted_keys(const Real* weights, std::int64_t count) {
  std::vector<std::int64_t> keys;
  for (std::int64_t j = 0; j < count; ++j) {
    if (weights[j] > 0) keys.push_back(j);
  }
  std::stable_sort(keys.begin(), keys.end(),
                   [&](auto a, auto b) { return weights[a] > weights[b]; });
  return keys;
}

template <typename T>
double tolerance() {
  return std::is_same_v<T, double> ? 1e-14 : 4e-6;
}

void expect_near(double got, double truth, double tolerance,
                 const std::string& what) {
  if (std::isnan(truth)) {
    EXPECT_TRUE(std::isnan(got)) << what << " is " << got;
  } else {
    EXPECT_NEAR(got, truth, tolerance) << what;
  }
}

template <typename T>
void expect_parts(const AttentionCase& unrounded, const Wanted& wanted) {
  const AttentionCase c = test::rounded_to<T>(unrounded);
  SCOPED_TRACE(c.describe());
  const auto parts = run_parts<T>(c, wanted);
  const Expected expected(c, wanted);
  const double close = tolerance<T>();
  const std::int64_t heads = wanted.head_count(c), rows = wanted.row_count(c);
  std::vector<double> received(parts.received.size(), 0.0);
  std::vector<double> rows_of(static_cast<std::size_t>(c.batch), 0.0);
  std::int64_t n = 0;
  for (std::int64_t b = 0; b < c.rows(); ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < rows; ++i, ++n) {
        const ExpectedRow row = expected.row(b, h, i);
        const std::string at = " of batch " + std::to_string(b) + ", head " +
                               std::to_string(h) + ", row " + std::to_string(i);
        double entropy = 0;
        for (std::size_t j = 0; j < row.weights.size(); ++j) {
          const double w = row.weights[j];
          if (!parts.weights.empty()) {
            expect_near(
                parts.weights[static_cast<std::size_t>(n * c.kv_len) + j], w,
                close, "weight " + std::to_string(j) + at);
          }
          if (w != 0) entropy -= w * std::log(w);
          received[static_cast<std::size_t>((b * heads + h) * c.kv_len +
                                            row.kv_begin) +
                   j] += w;
        }
        if (h == 0) rows_of[static_cast<std::size_t>(row.sequence)] += 1;
        expect_near(parts.entropy[static_cast<std::size_t>(n)], entropy,
                    4 * close, "entropy" + at);
        const auto keys =
            sorted_keys(row.weights.data(), std::ssize(row.weights));
        for (std::int64_t t = 0; t < wanted.top; ++t) {
          const auto place = static_cast<std::size_t>(n * wanted.top + t);
          const std::int64_t key = parts.top_keys[place];
          const double weight = parts.top_weights[place];
          if (std::isnan(entropy)) {
            EXPECT_EQ(key, -1) << at;
            EXPECT_TRUE(std::isnan(weight)) << at;
            continue;
          }
          const double truth = t < std::ssize(keys)
                                   ? row.weights[static_cast<std::size_t>(
                                         keys[static_cast<std::size_t>(t)])]
                                   : 0;
          EXPECT_NEAR(weight, truth, close) << "top " << t << at;
          if (key >= 0) {
            EXPECT_NEAR(weight, row.weights[static_cast<std::size_t>(key)],
                        close)
                << "key of top " << t << at;
          } else {
            EXPECT_EQ(weight, 0) << at;
            EXPECT_NEAR(truth, 0, 1e-30) << at;
          }
        }
      }
    }
  }
  for (std::size_t j = 0; j < received.size(); ++j) {
    double truth = received[j];
    double scale = 1;
    if (wanted.received_over == OverRows::kMean) {
      const auto key = static_cast<std::int64_t>(j) % c.kv_len;
      std::size_t b = j / static_cast<std::size_t>(heads * c.kv_len);
      while (c.is_packed() && c.kv_offsets[b + 1] <= key) ++b;
      scale = rows_of[b] == 0 ? 0 : 1 / rows_of[b];
    }
    expect_near(parts.received[j], truth * scale,
                close * (1 + std::abs(truth) * scale),
                "received " + std::to_string(j));
  }
}

template <typename T>
class WeightsParts : public ::testing::Test {};
using Types = ::testing::Types<float, double, BFloat16, Float16>;
TYPED_TEST_SUITE(WeightsParts, Types);

TYPED_TEST(WeightsParts, AreThoseOfTheDefinitionAtOddSizes) {
  for (const std::int64_t q_len : {0, 1, 7, 48, 49, 97}) {
    for (const std::int64_t kv_len : {0, 1, 7, 59, 96, 97, 193}) {
      expect_parts<TypeParam>(weights_case(q_len, kv_len), {});
    }
  }
  expect_parts<TypeParam>(weights_case(3, 2100), {.top = 20});
}

TYPED_TEST(WeightsParts, AreThoseOfTheDefinitionUnderRandomMasks) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    AttentionCase c = weights_case(60, 131);
    Rng rng(seed);
    c.mask = test::random_mask(rng, c.entry(0).sizes);
    SCOPED_TRACE(seed);
    expect_parts<TypeParam>(
        c, {.heads = seed % 2 == 0 ? OverHeads::kEach : OverHeads::kMean});
  }
}

TYPED_TEST(WeightsParts, FollowEveryOptionButDropout) {
  AttentionCase c = weights_case(50, 130);
  Rng rng(3);
  c.mask = test::causal_spec();
  c.bias = test::random_bias(rng, {1, c.heads, c.q_len, c.kv_len});
  c.bias->values[17] = -std::numeric_limits<double>::infinity();
  c.head_scales = {1, 2, 0.5, 1.5};
  c.alibi_slopes = {0.1, 0.2, 0, 0.3};
  c.sinks = {0, 1, -1, 0.5};
  c.softcap = 4;
  c.scale = 0.5;
  c.dropout_rate = 0.5f;
  expect_parts<TypeParam>(c, {});
  c.cosine = true;
  expect_parts<TypeParam>(c, {.heads = OverHeads::kMean});
}

TYPED_TEST(WeightsParts, OfChosenRowsComeInTheOrderAsked) {
  AttentionCase c = weights_case(120, 150);
  c.mask = test::causal_spec();
  std::vector<std::int64_t> rows{119, 0, 7, 7, 64, 3};
  expect_parts<TypeParam>(c, {.rows = rows});
  expect_parts<TypeParam>(c, {.rows = rows, .heads = OverHeads::kMean});
  rows.resize(100);
  std::iota(rows.begin() + 6, rows.end(), 20);
  expect_parts<TypeParam>(c, {.rows = rows, .all_weights = false});
}

TYPED_TEST(WeightsParts, ReceivedMayBeTheMeanOverRows) {
  AttentionCase c = weights_case(70, 99);
  c.mask = test::window_spec(20, 20);
  expect_parts<TypeParam>(c, {.received_over = OverRows::kMean});
  expect_parts<TypeParam>(c, {.rows = {4, 9},
                              .heads = OverHeads::kMean,
                              .received_over = OverRows::kMean});
}

TYPED_TEST(WeightsParts, OfPackedSequencesCountKeysFromTheirStart) {
  AttentionCase c = test::packed_weights_case();
  expect_parts<TypeParam>(c, {});
  c.mask = test::causal_spec();
  expect_parts<TypeParam>(
      c, {.heads = OverHeads::kMean, .received_over = OverRows::kMean});
  expect_parts<TypeParam>(
      c, {.rows = {100, 2, 60, 1, 99}, .received_over = OverRows::kMean});
}

TYPED_TEST(WeightsParts, TopIsTheStartOfAFullSort) {
  AttentionCase c = test::rounded_to<TypeParam>(weights_case(30, 200));
  c.mask = test::causal_spec();
  for (const std::int64_t top : {1, 2, 17, 200, 230}) {
    const auto parts = run_parts<TypeParam>(c, {.top = top});
    for (std::int64_t row = 0; row < 2 * 4 * 30; ++row) {
      const auto* weights = parts.weights.data() + row * c.kv_len;
      const auto keys = sorted_keys(weights, c.kv_len);
      for (std::int64_t t = 0; t < top; ++t) {
        const auto place = static_cast<std::size_t>(row * top + t);
        if (t < std::ssize(keys)) {
          const std::int64_t key = keys[static_cast<std::size_t>(t)];
          ASSERT_EQ(parts.top_keys[place], key) << row << " " << t;
          ASSERT_EQ(parts.top_weights[place], weights[key]);
        } else {
          ASSERT_EQ(parts.top_keys[place], -1);
          ASSERT_EQ(parts.top_weights[place], 0);
        }
      }
    }
  }
}

TYPED_TEST(WeightsParts, TiesGoToTheLowerKey) {
  AttentionCase c = weights_case(2, 300);
  std::fill(c.k.begin(), c.k.end(), 0.5);
  const auto parts = run_parts<TypeParam>(c, {.top = 4});
  for (std::size_t i = 0; i < parts.top_keys.size(); ++i) {
    EXPECT_EQ(parts.top_keys[i], static_cast<std::int64_t>(i % 4));
  }
  for (const auto entropy : parts.entropy) {
    EXPECT_NEAR(entropy, std::log(300.0), 3e-5);
  }
}

TYPED_TEST(WeightsParts, PoisonReachesTheRowsThatSeeItAndTheKeysTheySee) {
  for (const double poison : test::kPoisons) {
    AttentionCase c = weights_case(60, 60);
    c.mask = test::causal_spec();
    c.sinks = {0, 0, 0, 0};
    const auto clean = run_parts<TypeParam>(test::rounded_to<TypeParam>(c), {});
    const std::size_t at = c.key_at(c.entry(1), 2, 40, c.d_k);
    c.k[at] = poison;
    expect_parts<TypeParam>(c, {});
    expect_parts<TypeParam>(c, {.heads = OverHeads::kMean});
    const auto parts = run_parts<TypeParam>(test::rounded_to<TypeParam>(c), {});
    for (std::int64_t row = 0; row < 2 * 4 * 60; ++row) {
      const bool sees = row >= (4 + 2) * 60 && row % 60 >= 40;
      const auto* weights = parts.weights.data() + row * 60;
      for (std::int64_t j = 0; j < 60; ++j) {
        if (j > row % 60) {
          ASSERT_EQ(weights[j], 0) << row << " " << j;
        } else if (!sees) {
          ASSERT_EQ(weights[j],
                    clean.weights[static_cast<std::size_t>(row * 60 + j)]);
        }
      }
    }
  }
}

TYPED_TEST(WeightsParts, DoNotDependOnThreads) {
  AttentionCase c = test::rounded_to<TypeParam>(weights_case(300, 500));
  c.mask = test::causal_spec();
  for (const OverHeads heads : {OverHeads::kEach, OverHeads::kMean}) {
    const auto one = run_parts<TypeParam>(c, {.heads = heads});
    for (const int threads : {2, 3, 5}) {
      EXPECT_EQ(run_parts<TypeParam>(c, {.heads = heads, .threads = threads}),
                one);
    }
  }
}

// What is asked for besides changes no bit: with all weights the rows are
// written where the caller wants them, without them into scratch.
TYPED_TEST(WeightsParts, DoNotDependOnWhatElseIsAsked) {
  AttentionCase c = test::rounded_to<TypeParam>(weights_case(100, 140));
  const auto with = run_parts<TypeParam>(c, {});
  const auto without = run_parts<TypeParam>(c, {.all_weights = false});
  EXPECT_EQ(with.top_weights, without.top_weights);
  EXPECT_EQ(with.received, without.received);
  EXPECT_EQ(with.entropy, without.entropy);
  const auto chosen = run_parts<TypeParam>(c, {.rows = {77, 5}});
  const auto row_of = [&](const auto& parts, std::size_t row) {
    return std::vector(
        parts.weights.begin() + static_cast<std::ptrdiff_t>(row * 140),
        parts.weights.begin() + static_cast<std::ptrdiff_t>((row + 1) * 140));
  };
  EXPECT_EQ(row_of(chosen, 0), row_of(with, 77));
  EXPECT_EQ(row_of(chosen, 1), row_of(with, 5));
}

TYPED_TEST(WeightsParts, TimesTheValuesAreWhatForwardReturns) {
  for (const std::int64_t kv_len : {61, 1500}) {
    AttentionCase c = weights_case(50, kv_len);
    c.mask = test::causal_spec();
    c.sinks = {0, 1, -1, 0.5};
    c = test::rounded_to<TypeParam>(c);
    const auto parts = run_parts<TypeParam>(c, {});
    const auto forward = test::run_attention<TypeParam>(c);
    const double storage = std::is_same_v<TypeParam, BFloat16>  ? 4e-3
                           : std::is_same_v<TypeParam, Float16> ? 5e-4
                                                                : 0;
    std::size_t n = 0;
    for (std::int64_t row = 0; row < 2 * 4 * 50; ++row) {
      for (std::int64_t d = 0; d < c.d_v; ++d, ++n) {
        double sum = 0;
        for (std::int64_t j = 0; j < kv_len; ++j) {
          sum += parts.weights[static_cast<std::size_t>(row * kv_len + j)] *
                 c.v[c.key_at(c.entry(row / 200), row / 50 % 4, j, c.d_v) +
                     static_cast<std::size_t>(d)];
        }
        ASSERT_NEAR(test::to_double(forward.out[n]), sum,
                    tolerance<TypeParam>() + storage * std::abs(sum))
            << "row " << row;
      }
    }
  }
}

TEST(WeightsOnEveryTarget, AreThoseOfTheDefinition) {
  test::on_every_simd_target([](const std::string&) {
    expect_parts<float>(weights_case(50, 97), {});
    expect_parts<BFloat16>(weights_case(50, 97), {.heads = OverHeads::kMean});
  });
}

TEST(WeightsOnEveryTarget, AreTheSameBitsWhereProductsAreFused) {
  const AttentionCase c = weights_case(100, 1300);
  const Parts<float> best = run_parts<float>(c, {});
  test::on_every_simd_target([&](const std::string& target) {
    if (!test::fuses_products(target)) return;
    EXPECT_EQ(run_parts<float>(c, {}), best);
  });
}

}  // namespace
}  // namespace regard
