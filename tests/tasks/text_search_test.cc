// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/text_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "regard/tensor/tensor.h"
#include "support/refusal.h"

namespace regard::tasks {
namespace {

Tensor random_rows(std::int64_t rows, std::int64_t width, unsigned seed) {
  Tensor tensor({rows, width});
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float& value : tensor.values<float>()) value = normal(random);
  return tensor;
}

double cosine(const float* a, const float* b, std::int64_t n) {
  double ab = 0, aa = 0, bb = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return aa == 0 || bb == 0 ? 0 : ab / std::sqrt(aa * bb);
}

TEST(Nearest, FindsTheMostSimilarRowsBestFirst) {
  constexpr std::int64_t kRows = 9001, kWidth = 19, kQueries = 5;
  const Tensor corpus = random_rows(kRows, kWidth, 1);
  const Tensor queries = random_rows(kQueries, kWidth, 2);
  const auto hits =
      nearest(corpus.view<float, 2>(), queries.view<float, 2>(), {.top = 7});
  ASSERT_EQ(hits.size(), static_cast<std::size_t>(kQueries));
  for (std::int64_t q = 0; q < kQueries; ++q) {
    std::vector<double> exact;
    for (std::int64_t r = 0; r < kRows; ++r) {
      exact.push_back(cosine(corpus.view<float, 2>().at(r),
                             queries.view<float, 2>().at(q), kWidth));
    }
    std::vector<double> sorted = exact;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const auto& found = hits[static_cast<std::size_t>(q)];
    ASSERT_EQ(found.size(), 7u);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto row = static_cast<std::size_t>(found[i].row);
      EXPECT_NEAR(found[i].similarity, exact[row], 1e-6);
      EXPECT_NEAR(exact[row], sorted[i], 1e-6);
    }
  }
}

TEST(Nearest, PutsTiesInOrderZerosAtZeroAndNansLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor corpus({nan, 0, 1, 0, 0, 0, 2, 0, -1, 0}, {5, 2});
  const Tensor query({3, 0}, {1, 2});
  const auto hits =
      nearest(corpus.view<float, 2>(), query.view<float, 2>(), {.top = 100});
  ASSERT_EQ(hits[0].size(), 5u);
  const std::vector<std::int64_t> rows = {1, 3, 2, 4, 0};
  const std::vector<float> similarities = {1, 1, 0, -1, nan};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(hits[0][i].row, rows[i]);
    if (i < 4) {
      EXPECT_FLOAT_EQ(hits[0][i].similarity, similarities[i]);
    }
  }
  EXPECT_TRUE(std::isnan(hits[0][4].similarity));
}

TEST(Nearest, TakesNothingAndRefusesWhatDoesNotFit) {
  const Tensor none({0, 3}), three({2, 3}), two({2, 2});
  EXPECT_TRUE(nearest(three.view<float, 2>(), none.view<float, 2>()).empty());
  EXPECT_TRUE(
      nearest(none.view<float, 2>(), three.view<float, 2>())[0].empty());
  EXPECT_EQ(test::refusal(
                [&] { nearest(three.view<float, 2>(), two.view<float, 2>()); }),
            "nearest: queries must be as wide as the corpus; they are 2 and 3");
  EXPECT_EQ(test::refusal([&] {
              nearest(two.view<float, 2>(), two.view<float, 2>(), {.top = 0});
            }),
            "nearest: top must be positive; got 0");
}

}  // namespace
}  // namespace regard::tasks
