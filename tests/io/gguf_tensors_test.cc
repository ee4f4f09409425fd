// SPDX-License-Identifier: Apache-2.0
// The values of GGUF's types, by blocks whose values are known on paper. That
// whole files have the bits of the package gguf, gguf_types_test.py holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/core/float16.h"
#include "regard/io/gguf.h"
#include "support/model_files.h"

namespace regard {
namespace {

using test::bytes_of_number;
using test::GgufWriter;
using testing::bytes_of;
using ::testing::ElementsAre;
using testing::text_of;

std::string half(float value) { return bytes_of_number(Float16(value).bits); }

std::size_t at(int i) { return static_cast<std::size_t>(i); }
float real(int value) { return static_cast<float>(value); }

// The integers that a product computes with stand for the same values.
void check_groups(const GgufFile& file, const GgufFile::Groups& groups,
                  std::span<const float> values) {
  std::vector<std::int8_t> codes(values.size());
  std::vector<float> scales(values.size()), minima(values.size());
  file.read_groups("t", 0, codes.data(), scales.data(), minima.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t g = i / static_cast<std::size_t>(groups.group);
    const float value = scales[g] * static_cast<float>(codes[i]) +
                        (groups.has_minima ? minima[g] : 0.0f);
    if (!std::isfinite(scales[g])) continue;
    EXPECT_EQ(value, values[i]) << i;
    if (groups.four_bits) {
      EXPECT_TRUE(codes[i] >= 0 && codes[i] < 16) << i;
    }
    if (groups.half_scales) {
      EXPECT_EQ(static_cast<float>(Float16(scales[g])), scales[g]);
      EXPECT_EQ(static_cast<float>(Float16(minima[g])), minima[g]);
    }
  }
  EXPECT_THROW(
      file.read_groups("t", 1, codes.data(), scales.data(), minima.data()),
      InvalidArgument);
}

// The values of one block of so many elements.
std::vector<float> values_of(std::uint32_t type, std::uint64_t elements,
                             const std::string& block) {
  const std::string bytes =
      GgufWriter().blocks("t", {elements}, type, block).bytes();
  const GgufFile file = GgufFile::parse(bytes_of(bytes));
  const Tensor tensor = file.tensor("t");
  EXPECT_EQ(tensor.shape(), (Shape{static_cast<std::int64_t>(elements)}));
  const auto values = tensor.values<float>();
  if (const auto groups = file.groups("t")) check_groups(file, *groups, values);
  return {values.begin(), values.end()};
}

// 16 bytes whose low halves count up from 0 and whose high ones down from 15.
std::string counting_halves() {
  std::string bytes;
  for (int i = 0; i < 16; ++i) {
    bytes += static_cast<char>(i | (15 - i) << 4);
  }
  return bytes;
}

TEST(GgufTensors, HalvesAreWidened) {
  EXPECT_THAT(values_of(1, 3, half(1.5f) + half(-0.0f) + half(65504.0f)),
              ElementsAre(1.5f, -0.0f, 65504.0f));
  EXPECT_THAT(values_of(30, 2,
                        bytes_of_number(BFloat16(-3.0f).bits) +
                            bytes_of_number(BFloat16(1e30f).bits)),
              ElementsAre(-3.0f, static_cast<float>(BFloat16(1e30f))));
}

TEST(GgufTensors, EightBitsAreScaled) {
  std::string block = half(0.25f);
  for (int i = 0; i < 32; ++i) block += static_cast<char>(i == 31 ? -128 : i);
  const auto values = values_of(8, 32, block);
  for (int i = 0; i < 31; ++i) EXPECT_EQ(values[at(i)], 0.25f * real(i));
  EXPECT_EQ(values[31], -32.0f);
}

TEST(GgufTensors, FourBitsComeLowHalvesFirst) {
  const auto zero = values_of(2, 32, half(0.5f) + counting_halves());
  const auto minimum =
      values_of(3, 32, half(0.5f) + half(-3.0f) + counting_halves());
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(zero[at(i)], 0.5f * real(i - 8));
    EXPECT_EQ(zero[at(i + 16)], 0.5f * real(15 - i - 8));
    EXPECT_EQ(minimum[at(i)], 0.5f * real(i) - 3.0f);
    EXPECT_EQ(minimum[at(i + 16)], 0.5f * real(15 - i) - 3.0f);
  }
}

TEST(GgufTensors, TheFifthBitStandsApart) {
  // Elements 1 and 31 have it.
  const std::string high = bytes_of_number<std::uint32_t>(0x80000002u);
  const auto zero = values_of(6, 32, half(2.0f) + high + counting_halves());
  const auto minimum =
      values_of(7, 32, half(2.0f) + half(1.0f) + high + counting_halves());
  for (int i = 0; i < 32; ++i) {
    const int q = (i < 16 ? i : 31 - i) + (i == 1 || i == 31 ? 16 : 0);
    EXPECT_EQ(zero[at(i)], 2.0f * real(q - 16)) << i;
    EXPECT_EQ(minimum[at(i)], 2.0f * real(q) + 1.0f) << i;
  }
}

// The twelve bytes of eight scales and eight minima.
std::string packed_pairs(const std::vector<int>& scales,
                         const std::vector<int>& minima) {
  std::string bytes(12, '\0');
  for (int j = 0; j < 4; ++j) {
    bytes[at(j)] =
        static_cast<char>(scales[at(j)] | (scales[at(j + 4)] >> 4) << 6);
    bytes[at(j + 4)] =
        static_cast<char>(minima[at(j)] | (minima[at(j + 4)] >> 4) << 6);
    bytes[at(j + 8)] = static_cast<char>((scales[at(j + 4)] & 15) |
                                         (minima[at(j + 4)] & 15) << 4);
  }
  return bytes;
}

TEST(GgufTensors, SuperBlocksHaveAPairForEach32) {
  const std::vector<int> scales = {1, 63, 17, 0, 33, 16, 62, 5};
  const std::vector<int> minima = {0, 9, 63, 32, 47, 15, 1, 31};
  // Element i of run j is (i + j) % 16, and has the fifth bit where i % 3 == j
  // % 3.
  std::string low(128, '\0'), high(32, '\0');
  for (int j = 0; j < 8; ++j) {
    for (int i = 0; i < 32; ++i) {
      char& halves = low[at(j / 2 * 32 + i)];
      halves = static_cast<char>(halves | (i + j) % 16 << (j % 2 * 4));
      char& bits = high[at(i)];
      if (i % 3 == j % 3) bits = static_cast<char>(bits | 1 << j);
    }
  }
  const std::string start =
      half(0.5f) + half(0.25f) + packed_pairs(scales, minima);
  const auto four = values_of(12, 256, start + low);
  const auto five = values_of(13, 256, start + high + low);
  for (int j = 0; j < 8; ++j) {
    for (int i = 0; i < 32; ++i) {
      const float scale = 0.5f * real(scales[at(j)]);
      const float minimum = 0.25f * real(minima[at(j)]);
      const int q = (i + j) % 16;
      const int more = i % 3 == j % 3 ? 16 : 0;
      EXPECT_EQ(four[at(j * 32 + i)], scale * real(q) - minimum);
      EXPECT_EQ(five[at(j * 32 + i)], scale * real(q + more) - minimum);
    }
  }
}

TEST(GgufTensors, SixBitsHaveAScaleForEach16) {
  // Element e is (e * 7) % 64; run r of half h lies in low[64 h + 32 (r % 2)],
  // its low or high half by r / 2, and bits 2 r of high[32 h].
  std::string low(128, '\0'), high(64, '\0'), scales;
  for (int e = 0; e < 256; ++e) {
    const int q = e * 7 % 64, h = e / 128, r = e % 128 / 32, i = e % 32;
    char& four = low[at(64 * h + 32 * (r % 2) + i)];
    four = static_cast<char>(four | (q & 15) << (r / 2 * 4));
    char& two = high[at(32 * h + i)];
    two = static_cast<char>(two | (q >> 4) << (2 * r));
  }
  for (int s = 0; s < 16; ++s) scales += static_cast<char>(s * 17 - 128);
  const auto values = values_of(14, 256, low + high + scales + half(0.125f));
  for (int e = 0; e < 256; ++e) {
    EXPECT_EQ(values[at(e)],
              0.125f * real(e / 16 * 17 - 128) * real(e * 7 % 64 - 32))
        << e;
  }
}

TEST(GgufTensors, AScaleThatIsNoNumberIsKept) {
  std::string block =
      half(std::numeric_limits<float>::quiet_NaN()) + std::string(32, '\1');
  EXPECT_TRUE(std::isnan(values_of(8, 32, block)[5]));
}

TEST(GgufTensors, OnlyF32IsReadInPlace) {
  const std::string bytes =
      GgufWriter()
          .blocks("q", {32}, 8, half(1.0f) + std::string(32, '\2'))
          .tensor("f", {2, 1}, {3, 4})
          .bytes();
  const GgufFile file = GgufFile::parse(bytes_of(bytes));
  EXPECT_EQ(file.type("q"), "Q8_0");
  EXPECT_EQ(file.type("f"), "F32");
  EXPECT_THAT(file.values("f"), ElementsAre(3, 4));
  EXPECT_THAT(file.tensor("f").values<float>(), ElementsAre(3, 4));
  EXPECT_EQ(text_of<InvalidArgument>([&] { file.values("q"); }),
            "GgufFile::parse: 'q' must be F32 to be read in place; it is "
            "Q8_0");
}

}  // namespace
}  // namespace regard
