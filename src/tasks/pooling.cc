// SPDX-License-Identifier: Apache-2.0
#include "tasks/pooling.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/rows.h"

namespace regard::tasks {

void pool_tokens(Pooling pooling, ops::ConstRows x, float* y) {
  const std::int64_t n = x.extent(0), width = x.extent(1);
  const auto divide_sum_by = [&](double divisor) {
    kernels::add_column_sums(x.data(), x.stride(0), n, width, y);
    const auto by = static_cast<float>(divisor);
    for (std::int64_t c = 0; c < width; ++c) y[c] /= by;
  };
  std::fill_n(y, width, 0.0f);
  if (n == 0) return;
  switch (pooling) {
    case Pooling::kCls:
      std::copy_n(x.at(0), width, y);
      break;
    case Pooling::kLastToken:
      std::copy_n(x.at(n - 1), width, y);
      break;
    case Pooling::kMax:
      std::copy_n(x.at(0), width, y);
      for (std::int64_t r = 1; r < n; ++r) {
        const float* const row = x.at(r);
        for (std::int64_t c = 0; c < width; ++c) {
          // In this order a NaN stays.
          y[c] = row[c] <= y[c] ? y[c] : row[c];
        }
      }
      break;
    case Pooling::kMean:
      divide_sum_by(static_cast<double>(n));
      break;
    case Pooling::kMeanSqrtLen:
      divide_sum_by(std::sqrt(static_cast<double>(n)));
      break;
    case Pooling::kWeightedMean: {
      for (std::int64_t r = 0; r < n; ++r) {
        kernels::add_scaled(x.at(r), static_cast<float>(r + 1), width, y);
      }
      const auto all = static_cast<float>(n * (n + 1) / 2);
      for (std::int64_t c = 0; c < width; ++c) y[c] /= all;
      break;
    }
  }
}

void normalize(std::span<float> y) {
  double squares = 0;
  for (const float v : y) squares += static_cast<double>(v) * v;
  const double length = std::max(std::sqrt(squares), 1e-12);
  for (float& v : y) v = static_cast<float>(v / length);
}

}  // namespace regard::tasks
