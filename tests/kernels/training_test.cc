// SPDX-License-Identifier: Apache-2.0
// The kernels that training needs beside products, norms and activations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/adam.h"
#include "kernels/cross_entropy.h"
#include "kernels/rows.h"
#include "regard/core/random.h"
#include "support/every_path.h"
#include "support/reference_operations.h"

namespace regard::kernels {
namespace {

std::vector<float> normals(std::size_t n, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> x(n);
  for (float& value : x) value = random.normal();
  return x;
}

TEST(DropoutAdd, DropsWhatTheDefinitionSaysAndAddsTheResidual) {
  for (const std::int64_t width : {1, 15, 64, 100, 130}) {
    testing::Matrix x(5, width);
    const std::vector<float> values = normals(x.values.size(), 1);
    const std::vector<float> residual = normals(x.values.size(), 2);
    std::copy(values.begin(), values.end(), x.values.begin());
    const testing::Matrix truth =
        testing::reference_dropout(x, 0.25, 0x123456789abcdef, 7);
    test::expect_same_bits_on_every_simd_target([&] {
      std::vector<float> y(values.size());
      const RowDropout dropout{0x123456789abcdef, 7, 1u << 30,
                               static_cast<float>(1 / 0.75)};
      // Rows 0 to 2, then 3 and 4: the place counts, not the call.
      dropout_add({3, width, 0, values.data(), residual.data(), y.data()},
                  dropout);
      dropout_add({2, width, 3, values.data() + 3 * width,
                   residual.data() + 3 * width, y.data() + 3 * width},
                  dropout);
      for (std::size_t i = 0; i < y.size(); ++i) {
        EXPECT_NEAR(y[i], truth.values[i] + double{residual[i]}, 1e-6);
      }
      return y;
    });
  }
}

TEST(DropoutAdd, KeepsTheShareAskedFor) {
  constexpr std::int64_t kWidth = 1024;
  std::vector<float> ones(100 * kWidth, 1.0f);
  dropout_add({100, kWidth, 0, ones.data(), nullptr, ones.data()},
              {3, 0, 1u << 30, static_cast<float>(1 / 0.75)});
  const auto dropped = std::count(ones.begin(), ones.end(), 0.0f);
  // 102400 draws at a quarter: five deviations are 693.
  EXPECT_NEAR(static_cast<double>(dropped), 25600, 693);
}

TEST(RowSums, ScaleAndAddAreTheDefinition) {
  const std::vector<float> x = normals(37, 1), z = normals(37, 2);
  test::expect_same_bits_on_every_simd_target([&] {
    std::vector<float> sum = z, other(37), alone(37);
    add_scaled(x.data(), 2.5f, 37, sum.data());
    scale_add(x.data(), 2.5f, z.data(), 37, other.data());
    scale_add(x.data(), 2.5f, nullptr, 37, alone.data());
    for (std::size_t i = 0; i < 37; ++i) {
      EXPECT_NEAR(sum[i], 2.5 * double{x[i]} + double{z[i]}, 1e-6);
      EXPECT_EQ(sum[i], other[i]);
      EXPECT_EQ(alone[i], 2.5f * x[i]);
    }
    return sum;
  });
}

TEST(RowSums, OfColumnsAreAddedBlockAfterBlock) {
  constexpr std::int64_t kRows = 150, kColumns = 19, kStride = 23;
  const std::vector<float> x = normals(kRows * kStride, 3);
  test::expect_same_bits_on_every_simd_target([&] {
    std::vector<float> sums(kColumns, 1.0f);
    add_column_sums(x.data(), kStride, kRows, kColumns, sums.data());
    for (std::int64_t c = 0; c < kColumns; ++c) {
      float total = 1.0f;
      for (std::int64_t first = 0; first < kRows; first += kSumBlock) {
        float block = 0.0f;
        for (std::int64_t r = first; r < std::min(kRows, first + kSumBlock);
             ++r) {
          block += x[static_cast<std::size_t>(r * kStride + c)];
        }
        total += block;
      }
      EXPECT_EQ(sums[static_cast<std::size_t>(c)], total);
    }
    return sums;
  });
}

TEST(CrossEntropyRowTest, IsTheDefinitionAndLeavesTheGradient) {
  for (const std::int64_t n : {1, 5, 16, 33, 1000}) {
    for (const float smoothing : {0.0f, 0.1f}) {
      std::vector<float> scores = normals(static_cast<std::size_t>(n), 4);
      for (float& score : scores) score = 5 * score + 100;
      testing::Matrix row(1, n);
      for (std::int64_t i = 0; i < n; ++i) {
        // The definition does not guard against overflow; the loss is the same.
        row(0, i) = double{scores[static_cast<std::size_t>(i)]} - 100;
      }
      const auto target = static_cast<std::int32_t>(n / 2);
      const double loss =
          testing::reference_cross_entropy(row, {target}, double{smoothing});
      test::expect_same_bits_on_every_simd_target([&] {
        std::vector<float> x = scores;
        const CrossEntropyRow alone = cross_entropy_row(
            x.data(), n, target, smoothing, WithGradient::kNo);
        EXPECT_EQ(x, scores);
        const CrossEntropyRow both = cross_entropy_row(
            x.data(), n, target, smoothing, WithGradient::kYes);
        EXPECT_EQ(alone.loss, both.loss);
        EXPECT_NEAR(both.loss, loss, 2e-5 * (1 + std::abs(loss)));
        double sum = 0;
        for (const double value : row.values) sum += std::exp(value);
        for (std::int64_t i = 0; i < n; ++i) {
          const double share = double{smoothing} / static_cast<double>(n) +
                               (i == target ? 1 - double{smoothing} : 0);
          EXPECT_NEAR(x[static_cast<std::size_t>(i)],
                      std::exp(row(0, i)) / sum - share, 2e-6);
        }
        return x;
      });
    }
  }
}

TEST(CrossEntropyRowTest, OfHugeScoresIsFinite) {
  std::vector<float> scores{1e30f, -1e30f, 0.0f};
  const CrossEntropyRow row =
      cross_entropy_row(scores.data(), 3, 0, 0.0f, WithGradient::kYes);
  EXPECT_NEAR(row.loss, 0, 1e25);  // a rounding of 1e30
  EXPECT_NEAR(scores[0], 0.0f, 1e-6);
  EXPECT_NEAR(scores[1], 0.0f, 1e-6);
}

TEST(LogSumExpRow, IsTheDefinition) {
  const std::vector<float> scores = normals(77, 5);
  double sum = 0;
  for (const float score : scores) sum += std::exp(double{score});
  test::expect_same_bits_on_every_simd_target([&] {
    const float value = log_sum_exp_row(scores.data(), 77);
    EXPECT_NEAR(value, std::log(sum), 1e-6);
    return std::vector<float>{value};
  });
}

TEST(BestScores, AreThoseOfAStableSort) {
  for (const std::size_t n : {1, 7, 16, 40, 1000}) {
    std::vector<float> scores = normals(n, 6);
    for (float& score : scores) score = std::round(4 * score);  // many ties
    std::vector<std::int32_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return scores[static_cast<std::size_t>(a)] >
             scores[static_cast<std::size_t>(b)];
    });
    for (const std::size_t k :
         {std::size_t{1}, std::min<std::size_t>(n, 6), n}) {
      test::expect_same_bits_on_every_simd_target([&] {
        std::vector<std::int32_t> places(k);
        std::vector<float> values(k);
        best_scores(scores.data(), static_cast<std::int64_t>(n),
                    static_cast<std::int64_t>(k), places.data(), values.data());
        for (std::size_t i = 0; i < k; ++i) {
          EXPECT_EQ(places[i], order[i]);
          EXPECT_EQ(values[i], scores[static_cast<std::size_t>(order[i])]);
        }
        return values;
      });
    }
  }
}

TEST(BestScores, PutNaNFirst) {
  std::vector<float> scores(50, 1.0f);
  scores[30] = std::numeric_limits<float>::quiet_NaN();
  scores[40] = 2.0f;
  std::int32_t places[2];
  float values[2];
  best_scores(scores.data(), 50, 2, places, values);
  EXPECT_EQ(places[0], 30);
  EXPECT_EQ(places[1], 40);
}

TEST(Adam, IsTheDefinition) {
  constexpr std::size_t kCount = 39;
  const std::vector<float> gradient = normals(kCount, 7);
  const std::vector<float> value = normals(kCount, 8);
  const std::vector<float> m = normals(kCount, 9);
  std::vector<float> v = normals(kCount, 10);
  for (float& x : v) x *= x;
  const AdamStep step{0.9f, 0.98f, 1e-3f, 0.01f, 1.5f, 0.25f, 0.03f, 0.999f};
  test::expect_same_bits_on_every_simd_target([&] {
    std::vector<float> new_value = value, new_m = m, new_v = v;
    adam_step(step, gradient.data(), kCount, new_value.data(), new_m.data(),
              new_v.data());
    for (std::size_t i = 0; i < kCount; ++i) {
      const double g = 0.25 * double{gradient[i]} + 0.03 * double{value[i]};
      const double m1 = 0.9 * double{m[i]} + 0.1 * g;
      const double v1 = 0.98 * double{v[i]} + 0.02 * g * g;
      EXPECT_NEAR(new_m[i], m1, 1e-6);
      EXPECT_NEAR(new_v[i], v1, 1e-6);
      EXPECT_NEAR(
          new_value[i],
          0.999 * double{value[i]} - 0.01 * m1 / (1.5 * std::sqrt(v1) + 1e-3),
          2e-6);
    }
    return new_value;
  });
}

TEST(SumOfSquares, IsTheDefinitionInOneOrder) {
  for (const std::size_t n : {0, 1, 17, 4096, 10000}) {
    const std::vector<float> x = normals(n, 11);
    double truth = 0;
    for (const float value : x) truth += double{value} * value;
    test::expect_same_bits_on_every_simd_target([&] {
      const double sum = sum_of_squares(x.data(), static_cast<std::int64_t>(n));
      EXPECT_NEAR(sum, truth, 1e-5 * (1 + truth));
      return std::vector<float>{static_cast<float>(sum)};
    });
  }
}

}  // namespace
}  // namespace regard::kernels
