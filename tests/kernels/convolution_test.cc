// SPDX-License-Identifier: Apache-2.0
#include "kernels/convolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "regard/core/random.h"
#include "support/every_path.h"

namespace regard::kernels {
namespace {

std::vector<float> random_values(std::int64_t count, Random& random) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = random.normal();
  return values;
}

// The definition, in double.
double depthwise_at(const Depthwise& job, std::int64_t i, std::int64_t j,
                    std::int64_t c) {
  double sum = job.bias[c];
  for (std::int64_t a = 0; a < 3; ++a) {
    for (std::int64_t b = 0; b < 3; ++b) {
      const std::int64_t y = i * job.stride + a - 1;
      const std::int64_t x = j * job.stride + b - 1;
      if (y < 0 || y >= job.height || x < 0 || x >= job.width) continue;
      sum += double{job.x[(y * job.width + x) * job.channels + c]} *
             double{job.weight[(3 * a + b) * job.channels + c]};
    }
  }
  return std::clamp(sum, 0.0, 6.0);
}

TEST(Convolution, OfEachChannelIsTheDefinition) {
  struct Sizes {
    std::int64_t height, width, channels;
  };
  for (const Sizes& size : {Sizes{1, 1, 1}, Sizes{1, 2, 5}, Sizes{5, 3, 16},
                            Sizes{6, 7, 33}, Sizes{2, 9, 8}}) {
    for (const std::int64_t stride : {1, 2}) {
      Random random(1);
      const auto x =
          random_values(size.height * size.width * size.channels, random);
      const auto weight = random_values(9 * size.channels, random);
      const auto bias = random_values(size.channels, random);
      const std::int64_t rows = (size.height + stride - 1) / stride;
      const std::int64_t columns = (size.width + stride - 1) / stride;
      test::expect_same_bits_on_every_simd_target([&] {
        std::vector<float> y(
            static_cast<std::size_t>(rows * columns * size.channels), -1.0f);
        const Depthwise job{size.height, size.width, size.channels,
                            stride,      x.data(),   weight.data(),
                            bias.data(), y.data()};
        for (std::int64_t i = 0; i < rows; ++i) depthwise_row(job, i);
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t j = 0; j < columns; ++j) {
            for (std::int64_t c = 0; c < size.channels; ++c) {
              EXPECT_NEAR(y[static_cast<std::size_t>(
                              (i * columns + j) * size.channels + c)],
                          depthwise_at(job, i, j, c), 4e-6)
                  << i << ", " << j << ", " << c << ", stride " << stride;
            }
          }
        }
        return y;
      });
    }
  }
}

TEST(Convolution, Relu6CutsAtBothEnds) {
  test::expect_same_bits_on_every_simd_target([] {
    std::vector<float> x;
    for (int i = -20; i <= 20; ++i) x.push_back(0.5f * static_cast<float>(i));
    std::vector<float> y = x;
    relu6(y.data(), static_cast<std::int64_t>(y.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(y[i], std::clamp(x[i], 0.0f, 6.0f));
    }
    return y;
  });
}

}  // namespace
}  // namespace regard::kernels
