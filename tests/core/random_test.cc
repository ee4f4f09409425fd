// SPDX-License-Identifier: Apache-2.0
#include "regard/core/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "regard/core/error.h"

namespace regard {
namespace {

// The known answers that the authors publish with Random123.
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (PhiloxCounter{0x6627e8d5u, 0xe169c58du,
                                                    0xbc57ac4cu, 0x9b00dbd8u}));
  const std::uint32_t ones = 0xffffffffu;
  EXPECT_EQ(
      philox({ones, ones, ones, ones}, ~std::uint64_t{0}),
      (PhiloxCounter{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(
      philox({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u},
             0x299f31d0a4093822u),
      (PhiloxCounter{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Random, TakesTheWordsOfPhiloxInOrder) {
  Random random(0);
  EXPECT_EQ(random.next_u32(), 0x6627e8d5u);
  EXPECT_EQ(random.next_u32(), 0xe169c58du);
  EXPECT_EQ(random.next_u32(), 0xbc57ac4cu);
  EXPECT_EQ(random.next_u32(), 0x9b00dbd8u);
  EXPECT_NE(random.next_u32(), 0x6627e8d5u);  // the counter moved on
}

TEST(Random, RepeatsItselfForTheSameSeedOnly) {
  Random a(11);
  Random b(11);
  Random c(12);
  int equal = 0;
  for (int i = 0; i < 100; ++i) {
    const std::uint32_t word = a.next_u32();
    EXPECT_EQ(word, b.next_u32());
    if (word == c.next_u32()) ++equal;
  }
  EXPECT_EQ(equal, 0);
}

TEST(Random, UniformStaysInItsIntervalAndFillsIt) {
  Random random(1);
  std::array<int, 10> bins{};
  double sum = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const float value = random.uniform();
    ASSERT_GE(value, 0.0f);
    ASSERT_LT(value, 1.0f);
    ++bins[static_cast<std::size_t>(value * 10)];
    sum += value;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);
  for (const int count : bins) EXPECT_NEAR(count, kDraws / 10, 500);
}

TEST(Random, UniformNeverReachesItsUpperEnd) {
  Random random(2);
  const float low = 1.0f;
  const float high = std::nextafter(low, 2.0f);  // no float lies between
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(random.uniform(low, high), low);
  const float most = std::numeric_limits<float>::max();
  for (int i = 0; i < 1000; ++i) {
    const float value = random.uniform(-most, most);
    ASSERT_TRUE(value >= -most && value < most);
  }
}

TEST(Random, UniformRefusesAnEmptyInterval) {
  Random random(3);
  try {
    random.uniform(2.0f, 1.0f);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "Random::uniform: low must be below high and both finite; "
                 "got 2 and 1");
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THROW(random.uniform(0.0f, infinity), InvalidArgument);
  EXPECT_THROW(random.uniform(1.0f, 1.0f), InvalidArgument);
}

TEST(Random, NormalHasTheMomentsOfANormal) {
  Random random(4);
  constexpr int kDraws = 200000;
  std::array<double, 4> moments{};
  for (int i = 0; i < kDraws; ++i) {
    const double value = random.normal();
    ASSERT_TRUE(std::isfinite(value));
    double power = 1;
    for (double& moment : moments) moment += (power *= value) / kDraws;
  }
  EXPECT_NEAR(moments[0], 0.0, 0.01);
  EXPECT_NEAR(moments[1], 1.0, 0.015);
  EXPECT_NEAR(moments[2], 0.0, 0.04);
  EXPECT_NEAR(moments[3], 3.0, 0.1);
}

TEST(Random, BelowIsEvenOverItsRange) {
  Random random(5);
  std::array<int, 7> counts{};
  for (int i = 0; i < 70000; ++i) {
    const std::int64_t value = random.below(7);
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 7);
    ++counts[static_cast<std::size_t>(value)];
  }
  for (const int count : counts) EXPECT_NEAR(count, 10000, 400);
}

// With three quarters of 2^63, a plain remainder would favour the low part.
TEST(Random, BelowIsUnbiasedForARangeThatIsNearlyAWord) {
  Random random(6);
  const std::int64_t range = std::int64_t{3} << 61;
  int low = 0;
  for (int i = 0; i < 30000; ++i) {
    const std::int64_t value = random.below(range);
    ASSERT_LT(value, range);
    if (value < range / 3) ++low;
  }
  EXPECT_NEAR(low, 10000, 400);
  EXPECT_EQ(random.below(1), 0);
}

TEST(Random, BelowRefusesAnEmptyRange) {
  Random random(7);
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{-5}}) {
    try {
      random.below(n);
      FAIL() << "accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(std::string(error.what()),
                "Random::below: n must be positive; got " + std::to_string(n));
    }
  }
}

}  // namespace
}  // namespace regard
