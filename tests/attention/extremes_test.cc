// SPDX-License-Identifier: Apache-2.0
// Scores at the ends of their range: huge, tiny, equal, and where the running
// maximum is rounded.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/expect_attention.h"

namespace regard {
namespace {

using test::AttentionCase;
using test::Rng;

constexpr double kInf = std::numeric_limits<double>::infinity();

void expect_exact(const AttentionCase& c) {
  test::expect_exact<float>(c);
  test::expect_exact<double>(c);
}

// Keys that lie along the one query that all rows share, so that key j has
// about the score asked for: about, because exact products would leave the
// plain loop no error to be compared with.
AttentionCase with_scores(std::int64_t q_len,
                          const std::vector<double>& scores) {
  AttentionCase c = test::filled(
      {.q_len = q_len, .kv_len = std::ssize(scores), .d_k = 8, .d_v = 8});
  double square = 0;
  for (std::int64_t d = 0; d < c.d_k; ++d) square += c.q[d] * c.q[d];
  c.scale = 0.3;
  for (std::int64_t i = 0; i < q_len; ++i) {
    for (std::int64_t d = 0; d < c.d_k; ++d) c.q[i * c.d_k + d] = c.q[d];
  }
  for (std::int64_t j = 0; j < c.kv_len; ++j) {
    for (std::int64_t d = 0; d < c.d_k; ++d) {
      c.k[j * c.d_k + d] =
          static_cast<float>(scores[j] / square / 0.3 * c.q[d]);
    }
  }
  return c;
}

AttentionCase two_heads(std::uint64_t seed) {
  return test::filled({.heads = 2,
                       .kv_heads = 2,
                       .q_len = 9,
                       .kv_len = 60,
                       .d_k = 16,
                       .d_v = 16},
                      seed);
}

std::vector<double> many(std::int64_t count, auto value) {
  std::vector<double> all;
  for (std::int64_t n = 0; n < count; ++n) {
    all.push_back(static_cast<double>(value(n)));
  }
  return all;
}

// The length of a vector may lie anywhere where its elements do.
TEST(ForwardExtremes, CosineScoresDoNotDependOnTheLengths) {
  const AttentionCase plain = [] {
    AttentionCase c = two_heads(7);
    c.cosine = true;
    c.scale = 6;
    return c;
  }();
  for (const double q_size : {0x1p-110, 0x1p-80, 1.0, 0x1p64, 0x1p120}) {
    for (const double k_size : {0x1p-110, 0x1p-70, 1.0, 0x1p66, 0x1p120}) {
      AttentionCase c = plain;
      for (double& x : c.q) x *= q_size;
      for (double& x : c.k) x *= k_size;
      // Scaling by powers of two is exact where nothing becomes subnormal, so
      // not even a bit may change.
      EXPECT_EQ(test::different_bits(test::run_attention<float>(plain),
                                     test::run_attention<float>(c)),
                "")
          << q_size << " " << k_size;
    }
  }
  AttentionCase c = plain;
  for (double& x : c.q) x *= 0x1p600;
  for (double& x : c.k) x *= 0x1p-600;
  EXPECT_EQ(test::different_bits(test::run_attention<double>(plain),
                                 test::run_attention<double>(c)),
            "");
}

// So small that the inverse of the cap is not a float: a score of 0 stays 0.
TEST(ForwardExtremes, ACapOfAlmostNothingLeavesTheMean) {
  AttentionCase c = two_heads(7);
  test::fill_row(c.q, 0, c.d_k, 0);
  for (const double cap : {1e-38, 1e-40, 1e-44}) {
    c.softcap = cap;
    expect_exact(c);
  }
}

TEST(ForwardExtremes, HugeScoresGiveTheLargestKeyEverything) {
  Rng rng(2);
  for (const double size : {1e3, 1e6, 1e15, 1e30, 3e37}) {
    // Steps far above rounding, in random order.
    auto scores = many(131, [&](std::int64_t n) {
      return size * (1.0 - 0.01 * static_cast<double>(n));
    });
    for (int turn = 0; turn < 3; ++turn) {
      expect_exact(with_scores(5, scores));
      std::shuffle(scores.begin(), scores.end(), rng);
    }
  }
}

TEST(ForwardExtremes, HugeScoresOfBothSigns) {
  for (const double size : {1e4, 1e6, 1e30}) {
    const auto scores = many(97, [&](std::int64_t n) {
      return (n % 2 == 0 ? 1 : -1) * size * (1 + 0.01 * static_cast<double>(n));
    });
    expect_exact(with_scores(49, scores));
  }
}

TEST(ForwardExtremes, AllHugelyNegativeScoresAreStillADistribution) {
  for (const double size : {-1e3, -1e6, -1e15, -1e30, -3e37}) {
    expect_exact(with_scores(3, many(61, [&](std::int64_t) { return size; })));
  }
}

TEST(ForwardExtremes, EqualScoresGiveTheMean) {
  for (const std::int64_t keys : {1, 2, 3, 48, 49, 96, 97, 1023, 1025, 2050}) {
    for (const double score : {0.0, 1.0, -7.25, 88.0, 1e5}) {
      expect_exact(
          with_scores(3, many(keys, [&](std::int64_t) { return score; })));
    }
  }
}

TEST(ForwardExtremes, RisingAndFallingScoresMoveTheMaximum) {
  for (const double step : {0.1, 0.7, 1.0, 5.0, 90.0, -0.1, -1.0, -90.0}) {
    expect_exact(with_scores(5, many(1100, [&](std::int64_t n) {
                               return step * static_cast<double>(n);
                             })));
  }
}

// One key far above the rest, at every place around the blocks' ends.
TEST(ForwardExtremes, OneKeyAboveTheRest) {
  for (const std::int64_t place :
       {0, 1, 7, 8, 15, 16, 47, 48, 49, 63, 64, 95, 96, 127, 128, 129, 199}) {
    for (const double height : {3.0, 30.0, 100.0, 1e4, 1e30}) {
      expect_exact(with_scores(3, many(200, [&](std::int64_t n) {
                                 return n == place ? height : 0.0;
                               })));
      expect_exact(with_scores(3, many(200, [&](std::int64_t n) {
                                 return n == place ? -height : 0.0;
                               })));
    }
  }
}

// In base 2 the maximum is rounded up to an integer: scores on, just below and
// just above integers and halves.
TEST(ForwardExtremes, ScoresOnIntegersAndHalvesInBaseTwo) {
  for (const double at :
       {-3.0, -0.5, 0.0, 0.5, 1.0, 1.5, 126.0, 127.5, 128.0}) {
    for (const double nudge : {0.0, 1e-7, -1e-7}) {
      AttentionCase c =
          test::filled({.q_len = 3, .kv_len = 50, .d_k = 1, .d_v = 8}, 7);
      c.scale = std::log(2.0);  // keys are scores in base 2
      c.q.assign(c.q.size(), 1.0);
      c.k = many(50, [&](std::int64_t n) {
        return static_cast<float>(at + nudge -
                                  0.5 * static_cast<double>(n % 5));
      });
      expect_exact(c);
    }
  }
}

TEST(ForwardExtremes, ScoresSpreadOverTheWholeRangeOfWeights) {
  // Weights from 1 down to far below the smallest float.
  expect_exact(with_scores(3, many(400, [](std::int64_t n) {
                             return -0.5 * static_cast<double>(n);
                           })));
  expect_exact(with_scores(3, many(400, [](std::int64_t n) {
                             return 0.5 * static_cast<double>(n) - 100;
                           })));
}

TEST(ForwardExtremes, DenormalInputs) {
  AttentionCase c = two_heads(4);
  for (double& value : c.v) value = static_cast<float>(value * 1e-40);
  expect_exact(c);
  for (double& value : c.k) value = static_cast<float>(value * 1e-40);
  expect_exact(c);
  for (double& value : c.q) value = static_cast<float>(value * 1e-40);
  expect_exact(c);
  // A length of so small a vector may be rounded to 0, but its row is still a
  // mean of the values.
  c.cosine = true;
  const double largest = *std::max_element(c.v.begin(), c.v.end());
  const double least = *std::min_element(c.v.begin(), c.v.end());
  for (const float value : test::run_attention<float>(c).out) {
    EXPECT_LE(value, largest);
    EXPECT_GE(value, least);
  }
}

TEST(ForwardExtremes, LargeValues) {
  for (const double size : {1e4, 1e10, 1e30, 1e36}) {
    AttentionCase c = two_heads(5);
    for (double& value : c.v) value = static_cast<float>(value * size);
    expect_exact(c);
  }
}

TEST(ForwardExtremes, RowsOfMinusInfinityBeforeAndAfterSeenOnes) {
  for (const std::int64_t seen : {0, 1, 47, 48, 96, 150, 199}) {
    AttentionCase c =
        with_scores(5, many(200, [](std::int64_t n) { return n % 7; }));
    Rng rng(6);
    c.bias = test::random_bias(rng, {1, 1, c.q_len, c.kv_len});
    for (std::int64_t i = 0; i < c.q_len; ++i) {
      for (std::int64_t j = 0; j < c.kv_len; ++j) {
        // Row 2 sees nothing; the others one key, or all from it on.
        const bool hidden = i == 2 || (i < 2 ? j != seen : j < seen);
        if (hidden) c.bias->values[c.bias->place(0, 0, i, j)] = -kInf;
      }
    }
    expect_exact(c);
  }
}

TEST(ForwardExtremes, VeryNegativeFiniteBiasIsNotMinusInfinity) {
  // The usual "mask" of other libraries: every key hidden in this way is a row
  // of equal scores, not an empty one.
  AttentionCase c = with_scores(3, many(70, [](std::int64_t) { return 0.25; }));
  for (const double bias : {-1e4, -1e9, -1e30, -2e38}) {
    c.bias = test::BiasSpec{{1, 1, 1, 1}, {bias}};
    expect_exact(c);
  }
}

TEST(ForwardExtremes, AScoreThatOverflowsDownwardsIsHidden) {
  AttentionCase c =
      test::filled({.q_len = 3, .kv_len = 70, .d_k = 1, .d_v = 8}, 8);
  c.q.assign(c.q.size(), 1e3);
  c.k = many(70, [](std::int64_t n) { return n == 30 ? -3e38f : 1e-3f; });
  AttentionCase hidden = c;
  test::DenseBools pairs({1, 1, 1, 70});
  pairs(0, 0, 0, 30) = true;
  hidden.mask = test::drop_spec(pairs);
  EXPECT_EQ(test::run_attention<float>(c).out,
            test::run_attention<float>(hidden).out);
  test::expect_exact<float>(hidden);
}

}  // namespace
}  // namespace regard
