// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "regard/core/random.h"
#include "regard/tensor/tensor.h"
#include "support/refusal.h"

namespace regard::nn {
namespace {

using test::refusal;

Tensor random_tensor(Shape shape, std::uint64_t seed) {
  Tensor tensor(std::move(shape));
  Random random(seed);
  for (float& x : tensor.values<float>()) x = random.normal();
  return tensor;
}

struct Sizes {
  std::int64_t rows, in, out;
};

class LinearTest : public ::testing::TestWithParam<Sizes> {
 protected:
  const Sizes s = GetParam();
  const Tensor x = random_tensor({s.rows, s.in}, 1);
  const Tensor weight = random_tensor({s.out, s.in}, 2);
  const Tensor bias = random_tensor({s.out}, 3);
  const Tensor d_y = random_tensor({s.rows, s.out}, 4);
  // Of a sum of so many products of standard normal numbers.
  static double allowed(std::int64_t terms) {
    return 1e-6 * (1 + std::sqrt(static_cast<double>(terms)));
  }
};

TEST_P(LinearTest, ForwardIsTheDefinitionForAnyThreads) {
  for (const int threads : {1, 3}) {
    Tensor y({s.rows, s.out});
    linear_forward(x.view<float, 2>(), weight.view<float, 2>(),
                   bias.view<float, 1>(), y.view<float, 2>(),
                   {.count = threads});
    for (std::int64_t r = 0; r < s.rows; ++r) {
      for (std::int64_t j = 0; j < s.out; ++j) {
        double sum = bias.view<float, 1>()(j);
        for (std::int64_t i = 0; i < s.in; ++i) {
          sum += double{x.view<float, 2>()(r, i)} *
                 double{weight.view<float, 2>()(j, i)};
        }
        const double got = y.view<float, 2>()(r, j);
        ASSERT_NEAR(got, sum, allowed(s.in)) << r << ", " << j;
      }
    }
  }
}

TEST_P(LinearTest, BackwardIsTheDefinitionAndOverwrites) {
  Tensor d_x = random_tensor({s.rows, s.in}, 5);
  Tensor d_weight = random_tensor({s.out, s.in}, 6);
  Tensor d_bias = random_tensor({s.out}, 7);
  linear_backward(d_y.view<float, 2>(), x.view<float, 2>(),
                  weight.view<float, 2>(),
                  {.x = d_x.view<float, 2>(),
                   .weight = d_weight.view<float, 2>(),
                   .bias = d_bias.view<float, 1>()},
                  {.count = 2});
  for (std::int64_t i = 0; i < s.in; ++i) {
    for (std::int64_t r = 0; r < s.rows; ++r) {
      double sum = 0;
      for (std::int64_t j = 0; j < s.out; ++j) {
        sum += double{d_y.view<float, 2>()(r, j)} *
               double{weight.view<float, 2>()(j, i)};
      }
      const double got = d_x.view<float, 2>()(r, i);
      ASSERT_NEAR(got, sum, allowed(s.out)) << r << ", " << i;
    }
  }
  for (std::int64_t j = 0; j < s.out; ++j) {
    double rows_sum = 0;
    for (std::int64_t r = 0; r < s.rows; ++r) {
      rows_sum += double{d_y.view<float, 2>()(r, j)};
    }
    const double d_b = d_bias.view<float, 1>()(j);
    ASSERT_NEAR(d_b, rows_sum, allowed(s.rows)) << j;
    for (std::int64_t i = 0; i < s.in; ++i) {
      double sum = 0;
      for (std::int64_t r = 0; r < s.rows; ++r) {
        sum += double{d_y.view<float, 2>()(r, j)} *
               double{x.view<float, 2>()(r, i)};
      }
      const double got = d_weight.view<float, 2>()(j, i);
      ASSERT_NEAR(got, sum, allowed(s.rows)) << j << ", " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, LinearTest,
                         ::testing::Values(Sizes{1, 7, 5}, Sizes{8, 600, 97},
                                           Sizes{16, 48, 64}, Sizes{17, 64, 33},
                                           Sizes{40, 65, 130}, Sizes{0, 4, 3},
                                           Sizes{3, 0, 5}, Sizes{3, 5, 0}),
                         [](const auto& p) {
                           return std::to_string(p.param.rows) + "x" +
                                  std::to_string(p.param.in) + "x" +
                                  std::to_string(p.param.out);
                         });

TEST(Linear, RefusesShapesThatDoNotFit) {
  Tensor x({2, 3}), weight({4, 3}), bias({4}), y({2, 4}), other({3, 4});
  const auto forward = [&](const Tensor& w, const Tensor& b, Tensor& to) {
    return refusal([&] {
      linear_forward(x.view<float, 2>(), w.view<float, 2>(), b.view<float, 1>(),
                     to.view<float, 2>());
    });
  };
  EXPECT_EQ(forward(other, bias, y),
            "linear_forward: weight must be [out, in], [3, 3]; it is [3, 4]");
  EXPECT_EQ(forward(weight, Tensor({3}), y),
            "linear_forward: bias must be [out], [4]; it is [3]");
  EXPECT_EQ(forward(weight, bias, other),
            "linear_forward: y must be [rows, out], [2, 4]; it is [3, 4]");
  EXPECT_EQ(refusal([&] {
              linear_backward(y.view<float, 2>(), x.view<float, 2>(),
                              weight.view<float, 2>(),
                              {.weight = other.view<float, 2>()});
            }),
            "linear_backward: gradients.weight must be shaped like weight, "
            "[4, 3]; it is [3, 4]");
}

}  // namespace
}  // namespace regard::nn
