// SPDX-License-Identifier: Apache-2.0
#include "ops/product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "regard/core/random.h"
#include "support/reference_operations.h"

namespace regard::ops {
namespace {

using testing::Matrix;

Matrix random_matrix(std::int64_t rows, std::int64_t columns,
                     std::uint64_t seed) {
  Matrix m(rows, columns);
  Random random(seed);
  // As a float holds it, so that both sides start from the same numbers.
  for (double& value : m.values) value = random.normal();
  return m;
}

// The same as rows of floats, `gap` of them between two rows.
struct Floats {
  explicit Floats(const Matrix& m, std::int64_t gap = 0)
      : rows(m.rows), width(m.columns), stride(m.columns + gap) {
    data.assign(static_cast<std::size_t>(rows * stride) + 1, kMark);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < width; ++c) {
        data[static_cast<std::size_t>(r * stride + c)] =
            static_cast<float>(m(r, c));
      }
    }
  }
  Rows view() { return columns(data.data(), rows, width, stride); }

  static constexpr float kMark = 777.0f;
  std::int64_t rows, width, stride;
  std::vector<float> data;
};

struct Case {
  std::int64_t rows, in, out;
  Activation activation;
  bool residual;
  WeightStorage storage;
};

double error_allowed(const Case& c) {
  // bf16 keeps 8 bits of both factors; codes are steps of the largest number.
  double each = 0x1p-21;
  if (c.storage == WeightStorage::kBFloat16) each = 0x1p-7;
  if (c.storage == WeightStorage::kInt8) each = 0x1p-6;
  if (c.storage == WeightStorage::kInt4) each = 0x1p-3;
  return 4 * each * std::sqrt(static_cast<double>(c.in) + 1);
}

class ProductTest : public ::testing::TestWithParam<Case> {};

// Every epilogue, for one thread and for several, which cut rows and columns.
TEST_P(ProductTest, IsTheDefinitionAndTheSameBitsForAnyThreads) {
  const Case& c = GetParam();
  const Matrix x = random_matrix(c.rows, c.in, 1);
  const Matrix w = random_matrix(c.out, c.in, 2);
  const Matrix bias = random_matrix(1, c.out, 3);
  const Matrix gate = random_matrix(c.out, c.in, 4);
  const Matrix gate_bias = random_matrix(1, c.out, 5);
  const Matrix residual = random_matrix(c.rows, c.out, 6);
  Matrix truth = testing::reference_linear(x, w, bias);
  const auto silu = testing::reference_silu;
  if (is_gated(c.activation)) {
    const Matrix open =
        testing::map(testing::reference_linear(x, gate, gate_bias), silu);
    for (std::size_t i = 0; i < truth.values.size(); ++i) {
      truth.values[i] *= open.values[i];
    }
  } else if (c.activation == Activation::kSilu) {
    truth = testing::map(truth, silu);
  }
  if (c.residual) truth = testing::reference_add(truth, residual);

  Floats in(x, 3), weight(w, 1), other(gate), added(residual, 5);
  Floats b(bias), gate_b(gate_bias), memory(truth, 2);
  const PackOptions options{.storage = c.storage};
  const PackedWeights packed = PackedWeights::pack(weight.view(), options);
  const PackedWeights packed_gate = PackedWeights::pack(other.view(), options);
  std::vector<float> first;
  for (const int threads : {1, 2, 5}) {
    Floats out(Matrix(c.rows, c.out), 7);
    Product product{.x = in.view(),
                    .weight = &packed,
                    .bias = b.data.data(),
                    .y = out.view()};
    product.epilogue.activation = c.activation;
    if (is_gated(c.activation)) {
      product.epilogue.gate = &packed_gate;
      product.epilogue.gate_bias = gate_b.data.data();
      product.epilogue.gate_memory = memory.view();
    }
    if (c.residual) product.epilogue.residual = added.view();
    multiply({&product, 1}, {.count = threads});
    if (threads == 1) first = out.data;
    ASSERT_EQ(std::memcmp(out.data.data(), first.data(),
                          first.size() * sizeof(float)),
              0)
        << threads;
    for (std::int64_t r = 0; r < c.rows; ++r) {
      for (std::int64_t i = 0; i < c.out; ++i) {
        const double got = out.view()(r, i);
        const double size = 1 + std::abs(truth(r, i));
        ASSERT_NEAR(got, truth(r, i), error_allowed(c) * size * 4)
            << r << ", " << i << ", threads " << threads;
      }
      for (std::int64_t i = c.out; i < out.stride; ++i) {
        ASSERT_EQ(out.view().at(r)[i], Floats::kMark) << "written beyond a row";
      }
    }
  }
}

constexpr WeightStorage kF32 = WeightStorage::kFloat32;
constexpr WeightStorage kBf16 = WeightStorage::kBFloat16;
constexpr WeightStorage kInt8 = WeightStorage::kInt8;
constexpr WeightStorage kInt4 = WeightStorage::kInt4;

const char* name_of(WeightStorage storage) {
  if (storage == kBf16) return "Bf16";
  if (storage == kInt8) return "Int8";
  return storage == kInt4 ? "Int4" : "";
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ProductTest,
    ::testing::Values(Case{1, 7, 5, Activation::kNone, false, kF32},
                      Case{1, 300, 1000, Activation::kSwiglu, true, kF32},
                      Case{9, 64, 97, Activation::kSilu, true, kF32},
                      Case{130, 33, 145, Activation::kSwiglu, true, kF32},
                      Case{700, 64, 48, Activation::kNone, true, kF32},
                      Case{0, 8, 8, Activation::kSilu, true, kF32},
                      Case{5, 70, 90, Activation::kSwiglu, true, kBf16},
                      Case{300, 64, 65, Activation::kSilu, false, kBf16},
                      Case{1, 100, 50, Activation::kNone, false, kInt8},
                      Case{70, 96, 130, Activation::kSwiglu, true, kInt8},
                      Case{1, 64, 40, Activation::kSilu, true, kInt4},
                      Case{131, 100, 90, Activation::kNone, true, kInt4}),
    [](const auto& p) {
      const Case& c = p.param;
      return std::to_string(c.rows) + "x" + std::to_string(c.in) + "x" +
             std::to_string(c.out) + name_of(c.storage);
    });

// Products of different shapes in one go, each with bits of its own.
TEST(Products, InOneGoHaveTheBitsOfEachAlone) {
  struct Part {
    Part(std::int64_t rows, std::int64_t out, std::uint64_t seed)
        : x(random_matrix(rows, 96, seed)),
          w(random_matrix(out, 96, seed + 1)),
          packed(PackedWeights::pack(w.view())),
          together(Matrix(rows, out)),
          alone(Matrix(rows, out)) {}
    Product product(Floats& y) {
      return {.x = x.view(), .weight = &packed, .y = y.view()};
    }
    Floats x, w;
    PackedWeights packed;
    Floats together, alone;
  };
  Part parts[] = {{200, 96, 1}, {3, 500, 3}, {0, 10, 5}, {64, 16, 7}};
  std::vector<Product> products;
  for (Part& part : parts) products.push_back(part.product(part.together));
  multiply(products, {.count = 3});
  for (Part& part : parts) {
    multiply(part.product(part.alone), {.count = 1});
    EXPECT_EQ(part.together.data, part.alone.data);
  }
}

// Codes as a file has them, whose weights are known: the input is rounded, the
// weights are not.
TEST(Products, WithGroupsOfCodesAreThoseOfTheWeightsTheyStandFor) {
  constexpr std::int64_t kRows = 9, kIn = 200, kOut = 50, kGroup = 32;
  constexpr std::int64_t kGroups = (kIn + kGroup - 1) / kGroup;
  for (const auto bits : {kernels::CodeBits::k8, kernels::CodeBits::k4}) {
    const bool four = bits == kernels::CodeBits::k4;
    const auto code = [&](std::int64_t r, std::int64_t i) {
      return four ? (r * 7 + i * 5) % 16 : (r * 31 + i * 17) % 255 - 127;
    };
    const auto scale = [](std::int64_t r, std::int64_t g) {
      return 0.125f * static_cast<float>(1 + (r + g) % 5);
    };
    const auto minimum = [&](std::int64_t r, std::int64_t g) {
      return four ? -0.5f * static_cast<float>((r + g) % 9) : 0.0f;
    };
    const auto read = [&](std::int64_t r, const GroupedWeights::Row& to) {
      for (std::int64_t i = 0; i < kIn; ++i) {
        to.codes[i] = static_cast<std::int8_t>(code(r, i));
      }
      for (std::int64_t g = 0; g < kGroups; ++g) {
        to.scales[g] = scale(r, g);
        if (four) to.minima[g] = minimum(r, g);
      }
    };
    Matrix w(kOut, kIn), x(kRows, kIn), zero(1, kOut);
    for (std::int64_t r = 0; r < kOut; ++r) {
      for (std::int64_t i = 0; i < kIn; ++i) {
        w(r, i) =
            double{scale(r, i / kGroup)} * static_cast<double>(code(r, i)) +
            double{minimum(r, i / kGroup)};
      }
    }
    // Integers are not changed by rounding where the largest is the largest
    // code: 127 in every group, or 32767 in the row beside 8 bits.
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t i = 0; i < kIn; ++i) {
        x(r, i) = i % kGroup == 3
                      ? 127.0
                      : static_cast<double>((r * 13 + i * 29) % 255 - 127);
      }
      if (!four) x(r, 3) = 32767.0;
    }
    const Matrix truth = testing::reference_linear(x, w, zero);
    const auto packed =
        PackedWeights::pack_groups({.out = kOut,
                                    .in = kIn,
                                    .group = kGroup,
                                    .bits = bits,
                                    .scales = kernels::ScaleType::kFloat16,
                                    .has_minima = four,
                                    .read = read});
    // 16 columns of 7 groups of 32, half floats beside them.
    EXPECT_EQ(packed.bytes(),
              four ? 4u * 7 * 16 * (2 * 2 + 16) : 4u * 7 * 16 * (2 + 32));
    Floats in(x), y(Matrix(kRows, kOut));
    for (const int threads : {1, 4}) {
      multiply({.x = in.view(), .weight = &packed, .y = y.view()},
               {.count = threads});
      for (std::int64_t r = 0; r < kRows; ++r) {
        for (std::int64_t j = 0; j < kOut; ++j) {
          const double got = y.view()(r, j);
          ASSERT_NEAR(got, truth(r, j), 1e-6 * (1e4 + std::abs(truth(r, j))))
              << r << ", " << j;
        }
      }
    }
  }
}

TEST(Products, OfWeightsThatAreNotFiniteAreNaNInTheirRow) {
  for (const WeightStorage storage : {kInt8, kInt4}) {
    Floats x(random_matrix(3, 64, 1)), w(random_matrix(20, 64, 2));
    w.data[5 * 64 + 7] = std::numeric_limits<float>::infinity();
    w.data[6 * 64 + 9] = std::numeric_limits<float>::quiet_NaN();
    Floats y(Matrix(3, 20));
    const auto packed = PackedWeights::pack(w.view(), {.storage = storage});
    multiply({.x = x.view(), .weight = &packed, .y = y.view()}, {});
    for (std::int64_t j = 0; j < 20; ++j) {
      EXPECT_EQ(std::isnan(y.view()(1, j)), j == 5 || j == 6) << j;
    }
  }
}

// Where rows are few, a weight is read as it is.
TEST(Products, AreTheSamePackedAndNot) {
  for (const std::int64_t rows : {0, 1, 8, 9, 16, 17, 40}) {
    for (const int threads : {1, 3}) {
      Floats x(random_matrix(rows, 700, 1)), w(random_matrix(4100, 700, 2), 3);
      Floats packed_y(Matrix(rows, 4100)), y(Matrix(rows, 4100));
      const auto packed = PackedWeights::pack(w.view());
      const auto chosen = PackedWeights::pack_for(rows, w.view());
      multiply({.x = x.view(), .weight = &packed, .y = packed_y.view()}, {});
      multiply({.x = x.view(), .weight = &chosen, .y = y.view()},
               {.count = threads});
      EXPECT_EQ(y.data, packed_y.data) << rows << ", threads " << threads;
    }
  }
}

// The gradient's product reads a weight as it is where rows are few.
TEST(Products, WithATransposedWeightAreTheSamePackedAndNot) {
  for (const std::int64_t rows : {1, 16, 17, 40}) {
    Floats x(random_matrix(rows, 30, 1)), w(random_matrix(30, 64, 2));
    Floats packed_y(Matrix(rows, 64)), y(Matrix(rows, 64));
    const auto packed = PackedWeights::pack_transposed(w.view());
    const auto chosen = PackedWeights::transposed_for(rows, w.view());
    multiply({.x = x.view(), .weight = &packed, .y = packed_y.view()}, {});
    multiply({.x = x.view(), .weight = &chosen, .y = y.view()}, {});
    EXPECT_EQ(y.data, packed_y.data) << rows;
  }
}

}  // namespace
}  // namespace regard::ops
