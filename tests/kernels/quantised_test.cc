// SPDX-License-Identifier: Apache-2.0
#include "kernels/quantised.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "regard/core/float16.h"
#include "regard/core/random.h"
#include "support/every_path.h"
#include "support/same_bits.h"

namespace regard::kernels {
namespace {

struct Case {
  std::int64_t m, n, k, group;
  CodeBits bits;
  ScaleType scales = ScaleType::kFloat32;
  bool minima = false;
  bool bias = true;
};

std::string name_of(const Case& c) {
  return std::to_string(c.m) + "x" + std::to_string(c.n) + "x" +
         std::to_string(c.k) + "_" + std::to_string(c.group) +
         (c.bits == CodeBits::k4 ? "_4bits" : "_8bits") +
         (c.scales == ScaleType::kFloat16 ? "_half" : "") +
         (c.minima ? "_minima" : "") + (c.bias ? "" : "_unbiased");
}

// Random codes, scales and minima, and the left side.
struct Problem {
  explicit Problem(const Case& c)
      : layout{.k = c.k,
               .group = c.group,
               .bits = c.bits,
               .scales = c.scales,
               .has_minima = c.minima},
        m(c.m),
        n(c.n) {
    Random random(11);
    const auto groups = static_cast<std::size_t>(layout.groups());
    for (std::int64_t j = 0; j < n; ++j) {
      auto& column = codes.emplace_back();
      for (std::int64_t i = 0; i < c.k; ++i) {
        const double x = double{random.uniform()};
        column.push_back(static_cast<std::int8_t>(
            c.bits == CodeBits::k4 ? std::floor(x * 16)
                                   : std::floor(x * 256) - 128));
      }
      const auto draw = [&](float size) {
        std::vector<float> values;
        for (std::size_t g = 0; g < groups; ++g) {
          values.push_back(static_cast<float>(Float16(size * random.normal())));
        }
        return values;
      };
      scales.push_back(draw(0.02f));
      minima.push_back(draw(0.3f));
      bias.push_back(random.normal());
    }
    for (std::int64_t i = 0; i < m * a_stride(); ++i) {
      a.push_back(random.normal());
    }
    // The largest codes against the largest inputs: nothing may saturate.
    if (n > 2 && m > 0) {
      for (std::int64_t i = 0; i < c.k; ++i) {
        a[static_cast<std::size_t>(i)] = i % 3 == 0 ? -1.0f : 1.0f;
        const auto at = static_cast<std::size_t>(i);
        const std::int8_t most = c.bits == CodeBits::k4 ? 15 : 127;
        const std::int8_t least = c.bits == CodeBits::k4 ? 15 : -128;
        codes[1][at] = i % 3 == 0 ? most : least;
        codes[2][at] = least;
        if (n > 3) codes[3][at] = most;
      }
    }
  }

  std::int64_t a_stride() const { return layout.k + 3; }

  std::vector<std::byte> packed() const {
    const std::int64_t panels = (n + kQuantisedColumns - 1) / kQuantisedColumns;
    std::vector<std::byte> memory(static_cast<std::size_t>(panels) *
                                  layout.panel_bytes());
    for (std::int64_t j = 0; j < n; ++j) {
      const auto at = static_cast<std::size_t>(j);
      quantised_pack_column(
          layout,
          {codes[at].data(), scales[at].data(),
           layout.has_minima ? minima[at].data() : nullptr},
          j % kQuantisedColumns,
          memory.data() + static_cast<std::size_t>(j / kQuantisedColumns) *
                              layout.panel_bytes());
    }
    return memory;
  }

  std::vector<float> product(bool with_bias, bool vnni = has_vnni()) const {
    const std::vector<std::byte> b = packed();
    std::vector<float> c(static_cast<std::size_t>(m * c_stride()), kMark);
    std::vector<std::byte> rounded(
        static_cast<std::size_t>(m) * rounded_row_bytes(layout) + 1,
        std::byte{77});
    quantised_round(layout, a.data(), a_stride(), m, rounded.data());
    EXPECT_EQ(rounded.back(), std::byte{77}) << "written beyond the rows";
    quantised_gemm({.m = m,
                    .n = n,
                    .layout = &layout,
                    .a = rounded.data(),
                    .b = b.data(),
                    .bias = with_bias ? bias.data() : nullptr,
                    .c = c.data(),
                    .c_stride = c_stride(),
                    .vnni = vnni});
    return c;
  }
  std::int64_t c_stride() const { return n + 2; }

  // The largest code of the left side: 127 in each group beside codes of 4
  // bits; in the whole row, beside codes of 8 bits, as large as 16 bits and the
  // sum of a group in 32 allow.
  double most() const {
    if (layout.bits == CodeBits::k4) return 127;
    return std::min(32767.0, std::floor((std::exp2(31) - 1) /
                                        (128.0 * double(layout.group))));
  }

  // The definition in double, of the same rounded numbers.
  double truth(std::int64_t r, std::int64_t j, bool with_bias) const {
    const auto column = static_cast<std::size_t>(j);
    const auto x = [&](std::int64_t i) {
      return a[static_cast<std::size_t>(r * a_stride() + i)];
    };
    const auto largest_of = [&](std::int64_t begin, std::int64_t end) {
      double largest = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        largest = std::max(largest, std::abs(double{x(i)}));
      }
      return largest;
    };
    double sum = with_bias ? double{bias[column]} : 0.0;
    for (std::int64_t g = 0; g < layout.groups(); ++g) {
      const std::int64_t begin = g * layout.group;
      const std::int64_t end = std::min(layout.k, begin + layout.group);
      const double largest = layout.bits == CodeBits::k4
                                 ? largest_of(begin, end)
                                 : largest_of(0, layout.k);
      const float factor =
          static_cast<float>(most()) / static_cast<float>(largest);
      double products = 0, codes_sum = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        const double rounded = std::nearbyint(double{x(i) * factor});
        products += rounded * codes[column][static_cast<std::size_t>(i)];
        codes_sum += rounded;
      }
      const double a_scale = largest / most();
      const auto group = static_cast<std::size_t>(g);
      sum += products * double{scales[column][group]} * a_scale;
      if (layout.has_minima) {
        sum += double{minima[column][group]} * a_scale * codes_sum;
      }
    }
    return sum;
  }

  static constexpr float kMark = 4321.0f;
  QuantisedLayout layout;
  std::int64_t m, n;
  std::vector<float> a, bias;
  std::vector<std::vector<std::int8_t>> codes;     // of a column
  std::vector<std::vector<float>> scales, minima;  // of its groups
};

class QuantisedGemmTest : public ::testing::TestWithParam<Case> {};

TEST_P(QuantisedGemmTest, IsTheDefinitionWithTheSameBitsOnEveryTarget) {
  const Case& c = GetParam();
  const Problem p(c);
  std::vector<float> first;
  test::on_every_simd_target([&](const std::string&) {
    const std::vector<float> got = p.product(c.bias);
    for (std::int64_t r = 0; r < c.m; ++r) {
      for (std::int64_t j = 0; j < p.c_stride(); ++j) {
        const float value = got[static_cast<std::size_t>(r * p.c_stride() + j)];
        if (j >= c.n) {
          ASSERT_EQ(value, Problem::kMark) << "written past row " << r;
          continue;
        }
        const double exact = p.truth(r, j, c.bias);
        ASSERT_NEAR(value, exact,
                    2e-6 * (1 + std::abs(exact) +
                            static_cast<double>(p.layout.groups())))
            << r << ", " << j;
      }
    }
    if (first.empty()) first = got;
    ASSERT_TRUE(test::same_bits(first, got));
    const std::vector<float> other = p.product(c.bias, /*vnni=*/false);
    ASSERT_TRUE(test::same_bits(first, other));
  });
}

INSTANTIATE_TEST_SUITE_P(
    Cases, QuantisedGemmTest,
    ::testing::Values(
        Case{1, 1, 8, 32, CodeBits::k8}, Case{1, 40, 576, 32, CodeBits::k8},
        Case{5, 33, 100, 32, CodeBits::k8, ScaleType::kFloat16},
        Case{7, 16, 96, 16, CodeBits::k8, ScaleType::kFloat32, true},
        Case{4, 50, 384, 384, CodeBits::k8},
        Case{6, 17, 1001, 1008, CodeBits::k8, ScaleType::kFloat32, false,
             false},
        Case{9, 35, 2048, 32, CodeBits::k8, ScaleType::kFloat16, true},
        Case{1, 48, 576, 32, CodeBits::k4, ScaleType::kFloat16, true},
        Case{7, 30, 1536, 32, CodeBits::k4, ScaleType::kFloat16, true},
        Case{3, 20, 77, 32, CodeBits::k4, ScaleType::kFloat32, true},
        Case{4, 16, 64, 16, CodeBits::k4, ScaleType::kFloat32, false, false},
        Case{13, 70, 160, 32, CodeBits::k4, ScaleType::kFloat16, true},
        Case{6, 32, 96, 32, CodeBits::k4, ScaleType::kFloat32, false, false},
        Case{12, 67, 1008, 1008, CodeBits::k8},
        Case{2, 40, 512, 64, CodeBits::k8}, Case{15, 50, 384, 64, CodeBits::k8},
        Case{6, 17, 1001, 64, CodeBits::k8}, Case{3, 20, 24, 24, CodeBits::k8},
        Case{1, 5, 65536, 65536, CodeBits::k8},
        Case{4, 64, 576, 32, CodeBits::k8}, Case{5, 32, 384, 384, CodeBits::k8},
        Case{7, 64, 96, 32, CodeBits::k8}, Case{8, 40, 512, 64, CodeBits::k8},
        Case{13, 33, 160, 32, CodeBits::k8}, Case{32, 32, 96, 96, CodeBits::k8},
        Case{4, 32, 96, 32, CodeBits::k4, ScaleType::kFloat16, true},
        Case{5, 64, 160, 32, CodeBits::k4, ScaleType::kFloat16, true},
        Case{8, 32, 77, 32, CodeBits::k4, ScaleType::kFloat32, true},
        Case{10, 50, 96, 32, CodeBits::k4, ScaleType::kFloat32, false, false},
        Case{0, 5, 32, 32, CodeBits::k8}, Case{3, 0, 32, 32, CodeBits::k8},
        Case{3, 5, 0, 32, CodeBits::k8}),
    [](const auto& p) { return name_of(p.param); });

// One input of a thousand times the others' size, as language models have
// them: with 8 bits for the row the others would all become zero.
TEST(QuantisedGemm, ALargeInputLeavesTheOthersTheirBits) {
  Problem p({3, 20, 576, 64, CodeBits::k8});
  for (std::int64_t r = 0; r < p.m; ++r) {
    p.a[static_cast<std::size_t>(r * p.a_stride() + 100)] = 1000.0f;
  }
  for (auto& column : p.codes) column[100] = 0;
  const std::vector<float> got = p.product(false);
  double error = 0, power = 0;
  for (std::int64_t r = 0; r < p.m; ++r) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      const auto column = static_cast<std::size_t>(j);
      double exact = 0;
      for (std::int64_t i = 0; i < p.layout.k; ++i) {
        exact += double{p.a[static_cast<std::size_t>(r * p.a_stride() + i)]} *
                 double{p.scales[column][static_cast<std::size_t>(i / 64)]} *
                 p.codes[column][static_cast<std::size_t>(i)];
      }
      const double value = got[static_cast<std::size_t>(r * p.c_stride() + j)];
      error += (value - exact) * (value - exact);
      power += exact * exact;
    }
  }
  EXPECT_LE(std::sqrt(error / power), 0.015);
}

TEST(QuantisedGemm, WhatIsNotFiniteReachesItsRowAlone) {
  test::on_every_simd_target([&](const std::string&) {
    for (const CodeBits bits : {CodeBits::k8, CodeBits::k4}) {
      for (const float bad : {std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()}) {
        Problem p({3, 20, 96, 32, bits});
        p.a[static_cast<std::size_t>(p.a_stride() + 40)] = bad;
        const std::vector<float> got = p.product(true);
        for (std::int64_t r = 0; r < p.m; ++r) {
          for (std::int64_t j = 0; j < p.n; ++j) {
            const float value =
                got[static_cast<std::size_t>(r * p.c_stride() + j)];
            EXPECT_EQ(std::isnan(value), r == 1) << r << ", " << j;
          }
        }
      }
    }
  });
}

TEST(QuantiseGroups, TheLargestBecomes127AndTiesGoToEven) {
  test::on_every_simd_target([&](const std::string&) {
    std::vector<float> x(40, 0.0f);
    for (std::size_t i = 0; i < 40; ++i) x[i] = 0.5f * static_cast<float>(i);
    x[5] = 127;
    x[39] = -254;
    std::vector<std::int8_t> codes(40);
    std::vector<float> scales(2);
    quantise_groups(x.data(), 40, 32, codes.data(), scales.data());
    EXPECT_EQ(scales, (std::vector<float>{1, 2}));
    for (std::size_t i = 0; i < 32; ++i) {
      EXPECT_EQ(codes[i], std::nearbyint(double{x[i]})) << i;
    }
    EXPECT_EQ(codes[32], 8);
    EXPECT_EQ(codes[33], 8);  // 8.25
    EXPECT_EQ(codes[39], -127);
  });
}

TEST(QuantiseGroups, WhatIsNotFiniteIsSeenAndZeroStaysZero) {
  const float kInf = std::numeric_limits<float>::infinity();
  const float kNan = std::numeric_limits<float>::quiet_NaN();
  test::on_every_simd_target([&](const std::string&) {
    for (const float bad : {kInf, -kInf, kNan, -kNan}) {
      std::vector<float> x(24, 1.0f);
      x[13] = bad;
      std::vector<std::int8_t> codes(24);
      std::vector<float> scales(3);
      quantise_groups(x.data(), 24, 8, codes.data(), scales.data());
      EXPECT_EQ(std::isnan(scales[0]), false);
      EXPECT_EQ(std::isnan(scales[1]), true) << bad;
      EXPECT_EQ(codes[0], 127);
      EXPECT_EQ(codes[9], 0);
    }
    const std::vector<float> small{0.0f, -0.0f, 1e-42f, 1e-38f, 0, 0, 0, 0};
    std::vector<std::int8_t> codes(8, 3);
    float scale = 5;
    quantise_groups(small.data(), 8, 8, codes.data(), &scale);
    EXPECT_EQ(scale, 0.0f);
    EXPECT_EQ(codes, std::vector<std::int8_t>(8));
  });
}

}  // namespace
}  // namespace regard::kernels
