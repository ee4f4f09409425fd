// SPDX-License-Identifier: Apache-2.0
#include "regard/core/float16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace regard {
namespace {

// A binary format of IEEE 754, described by its two numbers.
struct Format {
  int fraction_bits;
  int smallest_exponent;  // of a normal number
  double largest;
};
constexpr Format kHalf{10, -14, 65504.0};
constexpr Format kBrain{7, -126, 0x1.fep127};

// The rule itself, in double: round to a multiple of the unit in the last
// place, ties to even (the default of nearbyint); past the largest, infinity.
double rounded(double value, const Format& format) {
  if (std::isinf(value) || value == 0) return value;
  const int exponent = std::max(std::ilogb(value), format.smallest_exponent);
  const double unit = std::ldexp(1.0, exponent - format.fraction_bits);
  const double result = std::nearbyint(value / unit) * unit;
  if (std::abs(result) > format.largest) {
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  }
  return result;
}

// The value of 16 bits by the definition of the format.
double meaning(std::uint16_t bits, const Format& format) {
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const int exponent = (bits & 0x7fff) >> format.fraction_bits;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (0x7fff >> format.fraction_bits)) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  const double lead = exponent == 0 ? 0.0 : std::ldexp(1, format.fraction_bits);
  return sign * std::ldexp(lead + fraction, std::max(exponent, 1) - 1 +
                                                format.smallest_exponent -
                                                format.fraction_bits);
}

float from_bits(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

template <typename Type>
void expect_every_value_to_mean_what_the_format_says(const Format& format) {
  for (std::uint32_t b = 0; b < 65536; ++b) {
    Type stored;
    stored.bits = static_cast<std::uint16_t>(b);
    const double expected = meaning(stored.bits, format);
    const auto value = static_cast<float>(stored);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << b;
    } else {
      ASSERT_EQ(value, expected) << b;
      ASSERT_EQ(std::signbit(value), b >= 32768) << b;
    }
  }
}

template <typename Type>
void expect_every_value_to_survive_a_round_trip() {
  for (std::uint32_t b = 0; b < 65536; ++b) {
    Type stored;
    stored.bits = static_cast<std::uint16_t>(b);
    const auto value = static_cast<float>(stored);
    const Type again(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(static_cast<float>(again))) << b;
    } else {
      ASSERT_EQ(again.bits, b);
    }
  }
}

// Every value of the format, the middle to its neighbour, and the floats on
// both sides of each; then floats of any bits.
std::vector<float> hard_floats(const Format& format) {
  std::vector<float> floats;
  const float infinity = std::numeric_limits<float>::infinity();
  for (std::uint32_t b = 0; b < 65535; ++b) {
    const double a = meaning(static_cast<std::uint16_t>(b), format);
    const double c = meaning(static_cast<std::uint16_t>(b + 1), format);
    if (!std::isfinite(a)) continue;
    const double next =
        std::isfinite(c) ? c : std::copysign(2 * format.largest, a);
    for (const double point : {a, (a + next) / 2}) {
      const auto value = static_cast<float>(point);
      floats.push_back(value);
      floats.push_back(std::nextafter(value, infinity));
      floats.push_back(std::nextafter(value, -infinity));
    }
  }
  // Halfway between the largest and where the next would be.
  const double unit =
      std::ldexp(1, std::ilogb(format.largest) - format.fraction_bits);
  const auto edge = static_cast<float>(format.largest + unit / 2);
  floats.insert(floats.end(), {edge, -edge, std::nextafter(edge, 0.0f),
                               std::nextafter(edge, infinity)});
  std::mt19937 generator(7);
  for (int i = 0; i < 300000; ++i) {
    floats.push_back(from_bits(static_cast<std::uint32_t>(generator())));
  }
  return floats;
}

template <typename Type>
void expect_rounding_to_nearest_even(const Format& format) {
  for (const float value : hard_floats(format)) {
    const auto result = static_cast<float>(Type(value));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(result));
      continue;
    }
    ASSERT_EQ(result, rounded(value, format)) << value;
    ASSERT_EQ(std::signbit(result), std::signbit(value)) << value;
  }
}

// A NaN whose payload sits only in the low bits must not turn into infinity.
template <typename Type>
void expect_every_nan_to_stay_nan() {
  for (std::uint32_t bit = 0; bit < 23; ++bit) {
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      const float nan = from_bits(sign | 0x7f800000u | (1u << bit));
      ASSERT_TRUE(std::isnan(static_cast<float>(Type(nan)))) << bit;
    }
  }
  EXPECT_TRUE(std::isnan(static_cast<float>(Type(from_bits(0x7fffffffu)))));
}

TEST(Float16, EveryValueMeansWhatTheFormatSays) {
  expect_every_value_to_mean_what_the_format_says<Float16>(kHalf);
}
TEST(Float16, EveryValueSurvivesARoundTrip) {
  expect_every_value_to_survive_a_round_trip<Float16>();
}
TEST(Float16, RoundsToTheNearestTiesToEven) {
  expect_rounding_to_nearest_even<Float16>(kHalf);
}
TEST(Float16, KeepsEveryNanANan) { expect_every_nan_to_stay_nan<Float16>(); }

TEST(BFloat16, EveryValueMeansWhatTheFormatSays) {
  expect_every_value_to_mean_what_the_format_says<BFloat16>(kBrain);
}
TEST(BFloat16, EveryValueSurvivesARoundTrip) {
  expect_every_value_to_survive_a_round_trip<BFloat16>();
}
TEST(BFloat16, RoundsToTheNearestTiesToEven) {
  expect_rounding_to_nearest_even<BFloat16>(kBrain);
}
TEST(BFloat16, KeepsEveryNanANan) { expect_every_nan_to_stay_nan<BFloat16>(); }

}  // namespace
}  // namespace regard
