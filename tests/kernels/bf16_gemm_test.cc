// SPDX-License-Identifier: Apache-2.0
// Matrix products of bf16 numbers, on every path that the machine has.
#include "kernels/bf16/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "regard/core/aligned_buffer.h"
#include "regard/core/float16.h"
#include "regard/core/random.h"
#include "support/every_path.h"

namespace regard::kernels {
namespace {

using test::on_every_bf16_path;

constexpr float kMark = 12345.0f;

template <typename T>
inline constexpr Storage kStorageOf = Storage::kFloat32;
template <>
inline constexpr Storage kStorageOf<BFloat16> = Storage::kBFloat16;
template <>
inline constexpr Storage kStorageOf<Float16> = Storage::kFloat16;

// Rows a few elements further apart than they are wide.
template <typename T>
struct Matrix {
  Matrix(std::int64_t rows_, std::int64_t columns_)
      : rows(rows_),
        columns(columns_),
        stride(columns_ + 3),
        data(static_cast<std::size_t>(rows * stride + 1), T(kMark)) {}

  T& at(std::int64_t r, std::int64_t c) {
    return data[static_cast<std::size_t>(r * stride + c)];
  }
  double value(std::int64_t r, std::int64_t c) const {
    return static_cast<float>(data[static_cast<std::size_t>(r * stride + c)]);
  }
  void fill(Random& random) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) at(r, c) = T(random.normal());
    }
  }
  Bf16Rows view(std::int64_t first = 0) const {
    return {data.data() + first * stride, kStorageOf<T>, stride};
  }

  std::int64_t rows, columns, stride;
  std::vector<T> data;
};

struct Sizes {
  std::int64_t m, n, k;
};

double rounded(double value) {
  return static_cast<float>(BFloat16(static_cast<float>(value)));
}

// a [m, k], b as its transpose [n, k].
template <typename T>
struct Case {
  explicit Case(const Sizes& s)
      : sizes(s), a(s.m, s.k), b(s.n, s.k), bias(s.n) {
    Random random(7);
    a.fill(random);
    b.fill(random);
    for (float& value : bias) value = random.normal();
    pack();
  }

  void pack() {
    packed = AlignedBuffer(
        static_cast<std::size_t>(2 * bf16_packed_size(sizes.n, sizes.k) + 64));
    bf16_pack_right(b.view(), sizes.n, sizes.k, right());
  }
  Bf16Bits* right() { return reinterpret_cast<Bf16Bits*>(packed.data()); }

  // Rows [first, first + count) of the product.
  template <typename Out>
  void multiply(Matrix<Out>& c, std::int64_t first, std::int64_t count,
                bool with_bias = true) {
    AlignedBuffer scratch(bf16_gemm_scratch_bytes(count, sizes.k) + 64);
    bf16_gemm({.m = count,
               .n = sizes.n,
               .k = sizes.k,
               .a = a.view(first),
               .b = right(),
               .bias = with_bias ? bias.data() : nullptr,
               .c = &c.at(first, 0),
               .c_storage = kStorageOf<Out>,
               .c_stride = c.stride},
              scratch.data());
  }

  Sizes sizes;
  Matrix<T> a, b;
  std::vector<float> bias;
  AlignedBuffer packed;
};

template <typename T, typename Out>
void expect_product(const Sizes& sizes, double unit) {
  Case<T> job(sizes);
  Matrix<Out> c(sizes.m, sizes.n);
  if (sizes.m > 0) job.multiply(c, 0, sizes.m);
  for (std::int64_t i = 0; i < sizes.m; ++i) {
    for (std::int64_t j = 0; j < sizes.n; ++j) {
      double exact = job.bias[static_cast<std::size_t>(j)],
             size = std::abs(exact);
      for (std::int64_t at = 0; at < sizes.k; ++at) {
        const double term =
            rounded(job.a.value(i, at)) * rounded(job.b.value(j, at));
        exact += term;
        size += std::abs(term);
      }
      ASSERT_NEAR(c.value(i, j), exact, 1e-6 * size + unit * std::abs(exact))
          << i << ", " << j;
    }
    for (std::int64_t j = sizes.n; j < c.stride; ++j) {
      ASSERT_EQ(c.value(i, j), static_cast<float>(Out(kMark)))
          << i << ", " << j;
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<Sizes>& info) {
  return std::to_string(info.param.m) + "x" + std::to_string(info.param.n) +
         "x" + std::to_string(info.param.k);
}

class Bf16GemmTest : public ::testing::TestWithParam<Sizes> {};

TEST_P(Bf16GemmTest, IsTheProductOfTheRoundedSides) {
  on_every_bf16_path([] {
    expect_product<float, float>(GetParam(), 0);
    expect_product<BFloat16, BFloat16>(GetParam(), 0x1p-8);
    expect_product<Float16, Float16>(GetParam(), 0x1p-11);
    expect_product<float, BFloat16>(GetParam(), 0x1p-8);
  });
}

INSTANTIATE_TEST_SUITE_P(, Bf16GemmTest,
                         ::testing::Values(Sizes{1, 1, 1}, Sizes{1, 33, 32},
                                           Sizes{16, 16, 31}, Sizes{17, 15, 33},
                                           Sizes{32, 32, 64}, Sizes{33, 64, 7},
                                           Sizes{49, 97, 300},
                                           Sizes{100, 40, 513},
                                           Sizes{64, 31, 257}, Sizes{0, 5, 5},
                                           Sizes{5, 0, 5}, Sizes{5, 7, 0}),
                         name_of);

TEST(Bf16Gemm, ARowHasTheSameBitsAmongAnyOthers) {
  on_every_bf16_path([] {
    const Sizes sizes{75, 70, 600};
    Case<float> job(sizes);
    Matrix<float> whole(sizes.m, sizes.n), cut(sizes.m, sizes.n);
    job.multiply(whole, 0, sizes.m);
    job.multiply(cut, 0, 1);
    job.multiply(cut, 1, 20);
    job.multiply(cut, 21, 54);
    EXPECT_EQ(whole.data, cut.data);
  });
}

TEST(Bf16Gemm, AColumnHasTheSameBitsWhenPanelsAreCut) {
  on_every_bf16_path([] {
    const Sizes sizes{40, 70, 100};
    Case<float> job(sizes);
    Matrix<float> whole(sizes.m, sizes.n), cut(sizes.m, sizes.n);
    job.multiply(whole, 0, sizes.m);
    AlignedBuffer scratch(bf16_gemm_scratch_bytes(sizes.m, sizes.k) + 64);
    for (std::int64_t column = 0; column < sizes.n;
         column += kBf16PanelColumns) {
      bf16_gemm({.m = sizes.m,
                 .n = std::min(kBf16PanelColumns, sizes.n - column),
                 .k = sizes.k,
                 .a = job.a.view(),
                 .b = job.right() + bf16_packed_size(column, sizes.k),
                 .bias = job.bias.data() + column,
                 .c = &cut.at(0, column),
                 .c_stride = cut.stride},
                scratch.data());
    }
    EXPECT_EQ(whole.data, cut.data);
  });
}

// Enough, in whole lines of memory, to be written past the caches on AMX.
TEST(Bf16Gemm, ALargeResultIsThatOfItsRowsOneByOne) {
  on_every_bf16_path([] {
    const Sizes sizes{200, 2720, 45};
    Case<float> job(sizes);
    const auto elements = static_cast<std::size_t>(sizes.m * sizes.n);
    AlignedBuffer large(elements * sizeof(float));
    AlignedBuffer scratch(bf16_gemm_scratch_bytes(sizes.m, sizes.k));
    auto* const c = reinterpret_cast<float*>(large.data());
    std::fill(c, c + elements, kMark);
    bf16_gemm({.m = sizes.m,
               .n = sizes.n,
               .k = sizes.k,
               .a = job.a.view(),
               .b = job.right(),
               .bias = job.bias.data(),
               .c = c,
               .c_stride = sizes.n},
              scratch.data());
    Matrix<float> one(sizes.m, sizes.n);
    for (std::int64_t i = 0; i < sizes.m; ++i) {
      job.multiply(one, i, 1);
      for (std::int64_t j = 0; j < sizes.n; ++j) {
        ASSERT_EQ(c[i * sizes.n + j], one.at(i, j)) << i << ", " << j;
      }
    }
  });
}

TEST(Bf16Gemm, NeedsNoBias) {
  on_every_bf16_path([] {
    Case<float> job({3, 5, 40});
    Matrix<float> with(3, 5), without(3, 5);
    job.multiply(with, 0, 3);
    job.multiply(without, 0, 3, false);
    for (std::int64_t j = 0; j < 5; ++j) {
      EXPECT_NEAR(with.value(1, j) - job.bias[static_cast<std::size_t>(j)],
                  without.value(1, j), 1e-5);
    }
  });
}

TEST(Bf16Gemm, NaNStaysInItsRow) {
  on_every_bf16_path([] {
    const Sizes sizes{40, 40, 70};
    Case<float> job(sizes);
    job.a.at(17, 3) = std::nanf("");
    Matrix<float> c(sizes.m, sizes.n);
    job.multiply(c, 0, sizes.m);
    for (std::int64_t i = 0; i < sizes.m; ++i) {
      for (std::int64_t j = 0; j < sizes.n; ++j) {
        ASSERT_EQ(std::isnan(c.value(i, j)), i == 17) << i << ", " << j;
      }
    }
  });
}

std::vector<float> transposed(const Matrix<float>& m) {
  std::vector<float> t(static_cast<std::size_t>(m.rows * m.columns));
  for (std::int64_t r = 0; r < m.rows; ++r) {
    for (std::int64_t c = 0; c < m.columns; ++c) {
      t[static_cast<std::size_t>(c * m.rows + r)] =
          static_cast<float>(m.value(r, c));
    }
  }
  return t;
}

class Bf16GemmSidesTest : public ::testing::TestWithParam<Sizes> {};

TEST_P(Bf16GemmSidesTest, ARightSidePackedFromItsRowsIsThatOfItsColumns) {
  on_every_bf16_path([] {
    const Sizes s = GetParam();
    Case<float> job(s);
    const std::vector<float> rows = transposed(job.b);
    const std::int64_t size = bf16_packed_size(s.n, s.k);
    AlignedBuffer packed(static_cast<std::size_t>(2 * size + 64));
    auto* const to = reinterpret_cast<Bf16Bits*>(packed.data());
    std::fill_n(to, size, Bf16Bits{0x7fc0});
    bf16_pack_right_rows(rows.data(), s.n, s.n, s.k, to);
    EXPECT_EQ(std::vector(to, to + size),
              std::vector(job.right(), job.right() + size));
  });
}

TEST_P(Bf16GemmSidesTest, ATransposedLeftSideHasTheSameBits) {
  on_every_bf16_path([] {
    const Sizes s = GetParam();
    Case<float> job(s);
    Matrix<float> one(s.m, s.n), other(s.m, s.n);
    job.multiply(one, 0, s.m);
    const std::vector<float> left = transposed(job.a);
    AlignedBuffer scratch(bf16_gemm_scratch_bytes(s.m, s.k) + 64);
    bf16_gemm({.m = s.m,
               .n = s.n,
               .k = s.k,
               .a = {left.data(), Storage::kFloat32, s.m},
               .a_is_transposed = true,
               .b = job.right(),
               .bias = job.bias.data(),
               .c = other.data.data(),
               .c_stride = other.stride},
              scratch.data());
    EXPECT_EQ(one.data, other.data);
  });
}

INSTANTIATE_TEST_SUITE_P(, Bf16GemmSidesTest,
                         ::testing::Values(Sizes{1, 1, 1}, Sizes{17, 33, 31},
                                           Sizes{31, 15, 65}, Sizes{64, 32, 64},
                                           Sizes{70, 70, 97}, Sizes{5, 7, 600}),
                         name_of);

TEST(Bf16Gemm, PartsAlongKAddUpToTheBitsOfTheWhole) {
  on_every_bf16_path([] {
    const Sizes sizes{70, 75, 160};
    Case<float> job(sizes);
    Matrix<float> whole(sizes.m, sizes.n), parts(sizes.m, sizes.n);
    job.multiply(whole, 0, sizes.m, false);
    std::int64_t begin = 0;
    for (const std::int64_t end : {32, 128, 160}) {
      Case<float> part({sizes.m, sizes.n, end - begin});
      for (std::int64_t at = begin; at < end; ++at) {
        for (std::int64_t i = 0; i < sizes.m; ++i) {
          part.a.at(i, at - begin) = job.a.at(i, at);
        }
        for (std::int64_t j = 0; j < sizes.n; ++j) {
          part.b.at(j, at - begin) = job.b.at(j, at);
        }
      }
      part.pack();
      AlignedBuffer scratch(bf16_gemm_scratch_bytes(sizes.m, end - begin) + 64);
      bf16_gemm({.m = sizes.m,
                 .n = sizes.n,
                 .k = end - begin,
                 .a = part.a.view(),
                 .b = part.right(),
                 .c = parts.data.data(),
                 .c_stride = parts.stride,
                 .start = begin == 0 ? Start::kZero : Start::kResult},
                scratch.data());
      begin = end;
    }
    EXPECT_EQ(whole.data, parts.data);
  });
}

TEST(Bf16Gemm, PacksTheSameOnEveryPath) {
  std::vector<std::vector<Bf16Bits>> packs;
  on_every_bf16_path([&] {
    Case<float> job({1, 50, 70});
    packs.emplace_back(job.right(), job.right() + bf16_packed_size(50, 70));
  });
  for (const auto& pack : packs) EXPECT_EQ(pack, packs.front());
}

}  // namespace
}  // namespace regard::kernels
