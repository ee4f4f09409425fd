// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "regard/core/random.h"
#include "support/every_path.h"

namespace regard::kernels {
namespace {

struct Problem {
  std::int64_t dim, half;
  RopePairs pairs;
};

class RopeTest : public ::testing::TestWithParam<Problem> {
 protected:
  static constexpr std::int64_t kHeads = 3;
  static constexpr std::int64_t kStride = 151;
  static constexpr float kMark = 12345.0f;

  void SetUp() override {
    Random random(5);
    for (std::int64_t i = 0; i < kHeads * kStride; ++i) {
      x_.push_back(i % kStride < GetParam().dim ? random.normal() : kMark);
    }
    for (std::int64_t i = 0; i < GetParam().half; ++i) {
      const float angle = random.uniform(0.0f, 7.0f);
      cos_.push_back(std::cos(angle));
      sin_.push_back(std::sin(angle));
    }
  }

  Rope job(const std::vector<float>& x, std::vector<float>& y) const {
    const Problem& p = GetParam();
    return {.pairs = p.pairs,
            .heads = kHeads,
            .dim = p.dim,
            .half = p.half,
            .x = x.data(),
            .x_stride = kStride,
            .cos = cos_.data(),
            .sin = sin_.data(),
            .y = y.data(),
            .y_stride = kStride};
  }

  // The definition, in float, every operation rounded.
  std::vector<float> expected(float sign) const {
    const Problem& p = GetParam();
    std::vector<float> y = x_;
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t i = 0; i < p.half; ++i) {
        const bool split = p.pairs == RopePairs::kHalfSplit;
        const std::int64_t at_a = h * kStride + (split ? i : 2 * i);
        const std::int64_t at_b = at_a + (split ? p.half : 1);
        const float a = x_[at_a], b = x_[at_b], c = cos_[i], s = sign * sin_[i];
        y[at_a] = a * c - b * s;
        y[at_b] = b * c + a * s;
      }
    }
    return y;
  }

  std::vector<float> x_, cos_, sin_;
};

TEST_P(RopeTest, TurnsEveryPairOnEveryTargetWithTheSameBits) {
  test::on_every_simd_target([&](const std::string&) {
    std::vector<float> y(x_.size(), kMark);
    rope(job(x_, y));
    EXPECT_EQ(y, expected(1.0f));
    rope_inverse(job(x_, y));
    EXPECT_EQ(y, expected(-1.0f));
  });
}

TEST_P(RopeTest, WorksInPlace) {
  std::vector<float> y = x_;
  rope(job(y, y));
  EXPECT_EQ(y, expected(1.0f));
  y = x_;
  rope_inverse(job(y, y));
  EXPECT_EQ(y, expected(-1.0f));
}

TEST_P(RopeTest, TheInverseComesBack) {
  std::vector<float> y = x_;
  rope(job(y, y));
  rope_inverse(job(y, y));
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], x_[i], 2e-6);
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, RopeTest,
    ::testing::Values(Problem{8, 4, RopePairs::kHalfSplit},
                      Problem{8, 4, RopePairs::kInterleaved},
                      Problem{64, 32, RopePairs::kHalfSplit},
                      Problem{64, 32, RopePairs::kInterleaved},
                      Problem{59, 20, RopePairs::kHalfSplit},
                      Problem{59, 20, RopePairs::kInterleaved},
                      Problem{150, 75, RopePairs::kHalfSplit},
                      Problem{150, 75, RopePairs::kInterleaved},
                      Problem{7, 0, RopePairs::kHalfSplit}),
    [](const auto& problem) {
      const Problem& p = problem.param;
      return std::to_string(p.dim) + "_" + std::to_string(p.half) +
             (p.pairs == RopePairs::kHalfSplit ? "_halves" : "_neighbours");
    });

}  // namespace
}  // namespace regard::kernels
