// SPDX-License-Identifier: Apache-2.0
// Gradients of the tape beside central differences of a definition in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "regard/autograd/tape.h"
#include "regard/core/random.h"
#include "regard/tensor/tensor.h"
#include "support/reference_operations.h"

namespace regard::autograd {

using testing::Matrix;
using Matrices = std::vector<Matrix>;
using Variables = std::vector<Variable>;

// Random floats, so that both sides start from the same numbers.
inline Matrix random_matrix(std::int64_t rows, std::int64_t columns,
                            std::uint64_t seed) {
  Random random(seed);
  Matrix m(rows, columns);
  for (double& value : m.values) value = static_cast<double>(random.normal());
  return m;
}

inline Tensor as_tensor(const Matrix& m) {
  Tensor tensor({m.rows, m.columns});
  std::transform(m.values.begin(), m.values.end(),
                 tensor.values<float>().begin(),
                 [](double value) { return static_cast<float>(value); });
  return tensor;
}

inline void expect_near(const float* got, const Matrix& truth,
                        const std::string& what) {
  double size = 1;
  for (const double value : truth.values)
    size = std::max(size, std::abs(value));
  for (std::size_t i = 0; i < truth.values.size(); ++i) {
    ASSERT_NEAR(got[i], truth.values[i], 2e-5 * size) << what << " " << i;
  }
}

// d (sum of d_out * f(inputs)) / d inputs[which], by central differences.
inline Matrix differences(const std::function<Matrix(const Matrices&)>& f,
                          Matrices inputs, const Matrix& d_out,
                          std::size_t which) {
  constexpr double kStep = 1e-5;
  const auto sum = [&] {
    const Matrix out = f(inputs);
    double total = 0;
    for (std::size_t i = 0; i < out.values.size(); ++i) {
      total += out.values[i] * d_out.values[i];
    }
    return total;
  };
  Matrix gradient(inputs[which].rows, inputs[which].columns);
  for (std::size_t i = 0; i < gradient.values.size(); ++i) {
    double& value = inputs[which].values[i];
    const double before = value;
    value = before + kStep;
    const double above = sum();
    value = before - kStep;
    gradient.values[i] = (above - sum()) / (2 * kStep);
    value = before;
  }
  return gradient;
}

}  // namespace regard::autograd
