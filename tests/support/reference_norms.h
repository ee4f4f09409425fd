// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

// Norms and rotary positions as they are defined, in plain loops over vectors
// [rows, dim]: in double the truth, in float the yardstick.
namespace regard::testing {

template <typename Real>
struct ReferenceNorm {
  std::size_t rows = 0, dim = 0;
  bool centred = false;  // layer norm, not RMS norm
  Real eps = 0;
  std::vector<Real> x, gamma, beta;

  Real mean(std::size_t row) const {
    if (!centred) return 0;
    Real sum = 0;
    for (std::size_t i = 0; i < dim; ++i) sum += x[row * dim + i];
    return sum / static_cast<Real>(dim);
  }
  Real rstd(std::size_t row) const {
    const Real m = mean(row);
    Real sum = 0;
    for (std::size_t i = 0; i < dim; ++i) {
      sum += (x[row * dim + i] - m) * (x[row * dim + i] - m);
    }
    return 1 / std::sqrt(sum / static_cast<Real>(dim) + eps);
  }
  Real normed(std::size_t row, std::size_t i) const {
    return (x[row * dim + i] - mean(row)) * rstd(row);
  }

  std::vector<Real> forward() const {
    std::vector<Real> y;
    for (std::size_t row = 0; row < rows; ++row) {
      const Real m = mean(row), r = rstd(row);
      for (std::size_t i = 0; i < dim; ++i) {
        y.push_back((x[row * dim + i] - m) * r * gamma[i] + beta[i]);
      }
    }
    return y;
  }

  struct Gradients {
    std::vector<Real> d_x, d_gamma, d_beta;
  };
  // By the chain rule, element by element: d h_j / d x_i is written out.
  Gradients backward(const std::vector<Real>& d_y) const {
    Gradients g{{}, std::vector<Real>(dim), std::vector<Real>(dim)};
    const Real n = static_cast<Real>(dim);
    for (std::size_t row = 0; row < rows; ++row) {
      const Real m = mean(row), r = rstd(row);
      std::vector<Real> h(dim);
      for (std::size_t i = 0; i < dim; ++i) h[i] = (x[row * dim + i] - m) * r;
      for (std::size_t i = 0; i < dim; ++i) {
        Real sum = 0;
        for (std::size_t j = 0; j < dim; ++j) {
          const Real same = i == j ? 1 : 0;
          const Real d_h =
              r * (same - (centred ? 1 / n : Real(0)) - h[i] * h[j] / n);
          sum += d_y[row * dim + j] * gamma[j] * d_h;
        }
        g.d_x.push_back(sum);
        g.d_gamma[i] += d_y[row * dim + i] * h[i];
        g.d_beta[i] += d_y[row * dim + i];
      }
    }
    return g;
  }
};

}  // namespace regard::testing
