// SPDX-License-Identifier: Apache-2.0
// Gradients of the tape beside central differences of a definition in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
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

// Memory of small matrices for a tape: what an operation forgets to write is
// not zero by luck.
inline MemoryPool dirty_pool() {
  constexpr std::int64_t kFloats = 1024;
  MemoryPool pool;
  std::vector<std::shared_ptr<float>> taken;
  for (int i = 0; i < 16; ++i) {
    taken.push_back(pool.take(kFloats));
    std::fill_n(taken.back().get(), kFloats,
                std::numeric_limits<float>::quiet_NaN());
  }
  return pool;
}

// The tape's value and gradients against the definition in double.
inline void check(
    const Matrices& inputs,
    const std::function<Variable(Tape&, const Variables&)>& operation,
    const std::function<Matrix(const Matrices&)>& definition) {
  const Matrix truth = definition(inputs);
  const Matrix d_out = random_matrix(truth.rows, truth.columns, 77);
  std::vector<Tensor> values;
  for (const Matrix& input : inputs) values.push_back(as_tensor(input));
  const Tensor d_values = as_tensor(d_out);
  for (const int threads : {1, 3}) {
    Tape tape(Record::kYes, {.count = threads}, dirty_pool());
    Variables variables;
    for (const Tensor& value : values) {
      variables.push_back(tape.input(value.view<float, 2>()));
    }
    {
      const Variable out = operation(tape, variables);
      ASSERT_EQ(out.rows(), truth.rows);
      ASSERT_EQ(out.columns(), truth.columns);
      expect_near(out.data(), truth, "value");
      tape.backward(out, d_values.view<float, 2>());
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensor gradient = tape.gradient_of(variables[i]);
      expect_near(gradient.values<float>().data(),
                  differences(definition, inputs, d_out, i),
                  "gradient of input " + std::to_string(i));
    }
  }
}

}  // namespace regard::autograd
