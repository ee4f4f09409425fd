// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "regard/core/aligned_buffer.h"
#include "regard/core/random.h"
#include "support/every_path.h"

namespace regard::kernels {
namespace {

// Elements of a matrix with a row stride of its own. What lies between the rows
// is filled with a mark, so that a write out of place shows.
struct Matrix {
  static constexpr float kMark = 12345.0f;

  Matrix(std::int64_t rows_, std::int64_t columns_, std::int64_t gap)
      : rows(rows_),
        columns(columns_),
        stride(columns_ + gap),
        data(static_cast<std::size_t>(rows * stride), kMark) {}

  float& at(std::int64_t r, std::int64_t c) {
    return data[static_cast<std::size_t>(r * stride + c)];
  }
  float at(std::int64_t r, std::int64_t c) const {
    return data[static_cast<std::size_t>(r * stride + c)];
  }
  void fill(Random& random) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) at(r, c) = random.normal();
    }
  }
  Matrix transposed(std::int64_t gap) const {
    Matrix t(columns, rows, gap);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) t.at(c, r) = at(r, c);
    }
    return t;
  }

  std::int64_t rows, columns, stride;
  std::vector<float> data;
};

std::vector<float> packed_columns(const Matrix& b) {
  // One float more than needed, to see that it stays.
  std::vector<float> packed(
      static_cast<std::size_t>(packed_columns_size(b.rows, b.columns) + 1),
      Matrix::kMark);
  pack_columns(b.data.data(), b.stride, b.rows, b.columns, packed.data());
  EXPECT_EQ(packed.back(), Matrix::kMark);
  return packed;
}

struct Problem {
  std::int64_t m, n, k;
  Start start = Start::kZero;
  bool bias = true;
};

std::string name_of(const Problem& p) {
  return std::to_string(p.m) + "x" + std::to_string(p.n) + "x" +
         std::to_string(p.k) + (p.start == Start::kResult ? "_added" : "") +
         (p.bias ? "_biased" : "");
}

class GemmTest : public ::testing::TestWithParam<Problem> {
 protected:
  void SetUp() override {
    const Problem& p = GetParam();
    Random random(7);
    a_.fill(random);
    b_.fill(random);
    old_.fill(random);
    for (std::int64_t j = 0; j < p.n; ++j) bias_.push_back(random.normal());
  }

  Matrix product(const float* a, std::int64_t a_stride, LeftSide left,
                 const float* packed) const {
    const Problem& p = GetParam();
    Matrix c = old_;
    gemm({.m = p.m,
          .n = p.n,
          .k = p.k,
          .left = left,
          .a = a,
          .a_stride = a_stride,
          .b = packed,
          .bias = p.bias ? bias_.data() : nullptr,
          .c = c.data.data(),
          .c_stride = c.stride,
          .start = p.start});
    return c;
  }

  // The definition in Real: chains of 64, added in index order.
  template <typename Real>
  Real chains(std::int64_t i, std::int64_t j) const {
    const Problem& p = GetParam();
    Real sum = p.start == Start::kResult ? Real(old_.at(i, j)) : Real(0);
    for (std::int64_t first = 0; first < p.k; first += 64) {
      Real chain = 0;
      for (std::int64_t l = first; l < std::min(first + 64, p.k); ++l) {
        chain = std::fma(Real(a_.at(i, l)), Real(b_.at(l, j)), chain);
      }
      sum += chain;
    }
    return p.bias ? sum + Real(bias_[static_cast<std::size_t>(j)]) : sum;
  }

  Matrix a_{GetParam().m, GetParam().k, 3};
  Matrix b_{GetParam().k, GetParam().n, 5};
  Matrix old_{GetParam().m, GetParam().n, 2};
  std::vector<float> bias_;
};

TEST_P(GemmTest, EachElementIsASumOfChainsInIndexOrderOnEveryTarget) {
  const Problem& p = GetParam();
  test::on_every_simd_target([&](const std::string& target) {
    const bool fused = test::fuses_products(target);
    const std::vector<float> packed = packed_columns(b_);
    const Matrix c =
        product(a_.data.data(), a_.stride, LeftSide::kRows, packed.data());
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < p.m; ++i) {
      for (std::int64_t j = 0; j < p.n; ++j) {
        const double exact = chains<double>(i, j);
        if (fused ? c.at(i, j) != chains<float>(i, j)
                  : std::abs(c.at(i, j) - exact) >
                        1e-6 * static_cast<double>(p.k + 1)) {
          ++wrong;
        }
      }
      for (std::int64_t j = p.n; j < c.stride; ++j) {
        EXPECT_EQ(c.at(i, j), Matrix::kMark) << "written past row " << i;
      }
    }
    EXPECT_EQ(wrong, 0);
  });
}

TEST_P(GemmTest, IsCloseToTheProductInDouble) {
  const Problem& p = GetParam();
  const std::vector<float> packed = packed_columns(b_);
  const Matrix c =
      product(a_.data.data(), a_.stride, LeftSide::kRows, packed.data());
  for (std::int64_t i = 0; i < p.m; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      ASSERT_NEAR(c.at(i, j), chains<double>(i, j),
                  1e-6 * static_cast<double>(p.k + 1));
    }
  }
}

TEST_P(GemmTest, PackingTheTransposeGivesTheSamePanels) {
  const Problem& p = GetParam();
  const Matrix bt = b_.transposed(4);
  test::on_every_simd_target([&](const std::string&) {
    std::vector<float> packed(
        static_cast<std::size_t>(packed_columns_size(p.k, p.n) + 1),
        Matrix::kMark);
    pack_columns_transposed(bt.data.data(), bt.stride, p.k, p.n, packed.data());
    EXPECT_EQ(packed, packed_columns(b_));
  });
}

TEST_P(GemmTest, APackedLeftSideGivesTheSameBits) {
  const Problem& p = GetParam();
  const Matrix at = a_.transposed(1);
  test::on_every_simd_target([&](const std::string&) {
    const std::vector<float> packed = packed_columns(b_);
    std::vector<float> rows(
        static_cast<std::size_t>(packed_rows_size(p.m, p.k) + 1),
        Matrix::kMark);
    pack_rows_transposed(at.data.data(), at.stride, p.m, p.k, rows.data());
    EXPECT_EQ(rows.back(), Matrix::kMark);
    const Matrix expected =
        product(a_.data.data(), a_.stride, LeftSide::kRows, packed.data());
    const Matrix c = product(rows.data(), 0, LeftSide::kPacked, packed.data());
    EXPECT_EQ(c.data, expected.data);
  });
}

TEST_P(GemmTest, ARightSideReadAsItIsGivesTheSameBits) {
  const Problem& p = GetParam();
  const std::int64_t columns = p.n / kColumnStep * kColumnStep;
  test::on_every_simd_target([&](const std::string&) {
    const std::vector<float> packed = packed_columns(b_);
    Matrix expected =
        product(a_.data.data(), a_.stride, LeftSide::kRows, packed.data());
    for (std::int64_t r = 0; r < p.m; ++r) {
      for (std::int64_t c = columns; c < p.n; ++c) {
        expected.at(r, c) = old_.at(r, c);  // not asked for, so not touched
      }
    }
    Matrix c = old_;
    gemm({.m = p.m,
          .n = columns,
          .k = p.k,
          .a = a_.data.data(),
          .a_stride = a_.stride,
          .right = RightSide::kRows,
          .b = b_.data.data(),
          .b_stride = b_.stride,
          .bias = p.bias ? bias_.data() : nullptr,
          .c = c.data.data(),
          .c_stride = c.stride,
          .start = p.start});
    EXPECT_EQ(c.data, expected.data);
  });
}

TEST_P(GemmTest, ATransposedRightSideReadAsItIsGivesTheSameBits) {
  const Problem& p = GetParam();
  const Matrix bt = b_.transposed(4);
  test::on_every_simd_target([&](const std::string&) {
    const std::vector<float> packed = packed_columns(b_);
    const Matrix expected =
        product(a_.data.data(), a_.stride, LeftSide::kRows, packed.data());
    Matrix c = old_;
    gemm({.m = p.m,
          .n = p.n,
          .k = p.k,
          .a = a_.data.data(),
          .a_stride = a_.stride,
          .right = RightSide::kTransposed,
          .b = bt.data.data(),
          .b_stride = bt.stride,
          .bias = p.bias ? bias_.data() : nullptr,
          .c = c.data.data(),
          .c_stride = c.stride,
          .start = p.start});
    EXPECT_EQ(c.data, expected.data);
  });
}

TEST_P(GemmTest, CuttingRowsAndPanelsChangesNoBit) {
  const Problem& p = GetParam();
  const std::vector<float> packed = packed_columns(b_);
  const Matrix whole =
      product(a_.data.data(), a_.stride, LeftSide::kRows, packed.data());
  Matrix cut = old_;
  for (std::int64_t row = 0; row < p.m; row += 5) {
    for (std::int64_t col = 0; col < p.n; col += kPanelColumns) {
      gemm({.m = std::min<std::int64_t>(5, p.m - row),
            .n = std::min(kPanelColumns, p.n - col),
            .k = p.k,
            .a = a_.data.data() + row * a_.stride,
            .a_stride = a_.stride,
            .b = packed.data() + col * p.k,
            .bias = p.bias ? bias_.data() + col : nullptr,
            .c = cut.data.data() + row * cut.stride + col,
            .c_stride = cut.stride,
            .start = p.start});
    }
  }
  EXPECT_EQ(cut.data, whole.data);
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, GemmTest,
    ::testing::Values(Problem{1, 1, 1}, Problem{1, 1, 0}, Problem{3, 100, 0},
                      Problem{0, 5, 3}, Problem{5, 0, 3}, Problem{7, 59, 97},
                      Problem{8, 48, 16}, Problem{9, 47, 17},
                      Problem{15, 49, 255}, Problem{16, 96, 256},
                      Problem{17, 97, 257}, Problem{3, 33, 600},
                      Problem{11, 113, 1100}, Problem{26, 50, 65},
                      Problem{50, 33, 3}, Problem{79, 18, 1},
                      Problem{55, 50, 130, Start::kResult, true},
                      Problem{23, 16, 64, Start::kZero, false},
                      Problem{12, 32, 512, Start::kResult, false},
                      Problem{13, 145, 513, Start::kResult, true},
                      Problem{4, 10, 0, Start::kResult, false}),
    [](const auto& problem) { return name_of(problem.param); });

// So large a product of so few rows is written past the caches.
TEST(Gemm, ALargeResultOfFewRowsIsOneChainAnElementOnEveryTarget) {
  constexpr std::int64_t kOut = 264, kIn = 160, kRows = 9;
  Random random(5);
  Matrix d_y(kRows, kOut, 0), x(kRows, kIn, 0);
  d_y.fill(random);
  x.fill(random);
  AlignedBuffer memory(kOut * kIn * sizeof(float));
  auto* const c = reinterpret_cast<float*>(memory.data());
  test::on_every_simd_target([&](const std::string& target) {
    std::vector<float> left(
        static_cast<std::size_t>(packed_rows_size(kOut, kRows)));
    pack_rows_transposed(d_y.data.data(), d_y.stride, kOut, kRows, left.data());
    gemm({.m = kOut,
          .n = kIn,
          .k = kRows,
          .left = LeftSide::kPacked,
          .a = left.data(),
          .right = RightSide::kRows,
          .b = x.data.data(),
          .b_stride = x.stride,
          .c = c,
          .c_stride = kIn});
    const bool fused = test::fuses_products(target);
    for (std::int64_t i = 0; i < kOut; ++i) {
      for (std::int64_t j = 0; j < kIn; ++j) {
        float sum = 0;
        for (std::int64_t l = 0; l < kRows; ++l) {
          sum = std::fma(d_y.at(l, i), x.at(l, j), sum);
        }
        ASSERT_NEAR(c[i * kIn + j], sum, fused ? 0.0f : 1e-5f) << i << " " << j;
      }
    }
  });
}

TEST(Gemm, NonFiniteValuesStayInTheirRowAndColumn) {
  Random random(3);
  Matrix a(9, 20, 0), b(20, 50, 0);
  a.fill(random);
  b.fill(random);
  a.at(4, 7) = std::numeric_limits<float>::quiet_NaN();
  b.at(11, 49) = std::numeric_limits<float>::infinity();
  const std::vector<float> packed = packed_columns(b);
  Matrix c(9, 50, 0);
  gemm({.m = 9,
        .n = 50,
        .k = 20,
        .a = a.data.data(),
        .a_stride = 20,
        .b = packed.data(),
        .c = c.data.data(),
        .c_stride = 50});
  for (std::int64_t i = 0; i < 9; ++i) {
    for (std::int64_t j = 0; j < 50; ++j) {
      EXPECT_EQ(std::isfinite(c.at(i, j)), i != 4 && j != 49);
    }
  }
}

}  // namespace
}  // namespace regard::kernels
