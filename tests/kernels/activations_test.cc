// SPDX-License-Identifier: Apache-2.0
#include "kernels/activations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "support/every_path.h"
#include "support/reference_operations.h"

namespace regard::kernels {
namespace {

struct Function {
  const char* name;
  Activation f;
  double (*definition)(double);
};

const Function kFunctions[] = {
    {"relu", Activation::kRelu, [](double x) { return x > 0 ? x : 0; }},
    {"gelu", Activation::kGelu, testing::reference_gelu},
    {"gelu_tanh", Activation::kGeluTanh, testing::reference_gelu_tanh},
    {"silu", Activation::kSilu, testing::reference_silu},
};

// 1003 values from -12 to 12: an odd number, so that a vector is left half
// empty.
std::vector<float> some_values() {
  std::vector<float> x;
  for (int i = -501; i <= 501; ++i) {
    x.push_back(12.0f * static_cast<float>(i) / 501.0f);
  }
  return x;
}

TEST(Activations, AreTheDefinition) {
  const std::vector<float> x = some_values();
  for (const Function& f : kFunctions) {
    test::expect_same_bits_on_every_simd_target([&] {
      std::vector<float> y(x.size());
      activate(f.f, x.data(), static_cast<std::int64_t>(x.size()), y.data());
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_NEAR(y[i], f.definition(x[i]),
                    4e-7 * std::max(1.0f, std::abs(x[i])))
            << f.name << " of " << x[i];
      }
      return y;
    });
  }
}

TEST(Activations, HaveTheSlopesOfTheDefinition) {
  const std::vector<float> x = some_values();
  for (const Function& f : kFunctions) {
    test::expect_same_bits_on_every_simd_target([&] {
      std::vector<float> d(x.size(), 2.0f);
      activate_backward(f.f, x.data(), d.data(),
                        static_cast<std::int64_t>(x.size()), d.data());
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (f.f == Activation::kRelu && x[i] == 0) {
          EXPECT_EQ(d[i], 0.0f);
          continue;
        }
        constexpr double kStep = 1e-6;
        const double slope = (f.definition(double{x[i]} + kStep) -
                              f.definition(double{x[i]} - kStep)) /
                             (2 * kStep);
        EXPECT_NEAR(d[i], 2 * slope, 4e-6) << f.name << " at " << x[i];
      }
      return d;
    });
  }
}

TEST(Activations, KeepNaNAndAreNothingFarBelowZero) {
  for (const Function& f : kFunctions) {
    const float x[] = {std::numeric_limits<float>::quiet_NaN(), -200.0f,
                       200.0f};
    float y[3];
    activate(f.f, x, 3, y);
    EXPECT_TRUE(std::isnan(y[0])) << f.name;
    EXPECT_NEAR(y[1], 0.0f, 2e-5) << f.name;
    EXPECT_EQ(y[2], 200.0f) << f.name;
  }
}

TEST(Swiglu, IsTheDefinitionForwardAndBackward) {
  const std::vector<float> a = some_values();
  std::vector<float> b = a;
  std::reverse(b.begin(), b.end());
  for (float& value : b) value = 0.5f * value + 1.0f;
  const auto n = static_cast<std::int64_t>(a.size());
  test::expect_same_bits_on_every_simd_target([&] {
    std::vector<float> y(a.size()), d_y(a.size(), 1.0f), d_a(a.size()),
        d_b(a.size());
    swiglu(a.data(), b.data(), n, y.data());
    swiglu_backward({a.data(), b.data(), d_y.data(), d_a.data(), d_b.data()},
                    n);
    for (std::size_t i = 0; i < a.size(); ++i) {
      constexpr double kStep = 1e-6;
      const double slope = (testing::reference_silu(double{a[i]} + kStep) -
                            testing::reference_silu(double{a[i]} - kStep)) /
                           (2 * kStep);
      EXPECT_NEAR(y[i], testing::reference_silu(a[i]) * double{b[i]}, 3e-5);
      EXPECT_NEAR(d_a[i], slope * double{b[i]}, 3e-5);
      EXPECT_NEAR(d_b[i], testing::reference_silu(a[i]), 1e-5);
    }
    y.insert(y.end(), d_a.begin(), d_a.end());
    return y;
  });
}

}  // namespace
}  // namespace regard::kernels
