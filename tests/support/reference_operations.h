// SPDX-License-Identifier: Apache-2.0
// The operations of regard/autograd/operations.h written down as they are
// defined, in double, without a thought for speed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>
#include <vector>

#include "support/philox_reference.h"

namespace regard::testing {

struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;

  Matrix() = default;
  Matrix(std::int64_t r, std::int64_t c)
      : rows(r), columns(c), values(static_cast<std::size_t>(r * c)) {}
  double& operator()(std::int64_t r, std::int64_t c) {
    return values[static_cast<std::size_t>(r * columns + c)];
  }
  double operator()(std::int64_t r, std::int64_t c) const {
    return values[static_cast<std::size_t>(r * columns + c)];
  }
};

inline double reference_gelu(double x) {
  return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
}
inline double reference_gelu_tanh(double x) {
  const double inner =
      std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(inner));
}
inline double reference_silu(double x) { return x / (1 + std::exp(-x)); }

inline Matrix map(Matrix x, const std::function<double(double)>& f) {
  for (double& value : x.values) value = f(value);
  return x;
}

// x weight^T + bias; bias may be empty.
inline Matrix reference_linear(const Matrix& x, const Matrix& weight,
                               const Matrix& bias) {
  Matrix y(x.rows, weight.rows);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t o = 0; o < weight.rows; ++o) {
      double sum = bias.values.empty() ? 0 : bias(0, o);
      for (std::int64_t i = 0; i < x.columns; ++i)
        sum += x(r, i) * weight(o, i);
      y(r, o) = sum;
    }
  }
  return y;
}

// f of the first half of the columns, times the second half.
inline Matrix reference_gated(const Matrix& x, double (*f)(double)) {
  Matrix y(x.rows, x.columns / 2);
  for (std::int64_t r = 0; r < y.rows; ++r) {
    for (std::int64_t c = 0; c < y.columns; ++c) {
      y(r, c) = f(x(r, c)) * x(r, c + y.columns);
    }
  }
  return y;
}

// Without a bias: RMS norm.
inline Matrix reference_norm(const Matrix& x, const Matrix& weight,
                             const Matrix& bias, double epsilon) {
  Matrix y(x.rows, x.columns);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    double mean = 0, square = 0;
    for (std::int64_t c = 0; c < x.columns; ++c) {
      mean += x(r, c) / static_cast<double>(x.columns);
    }
    if (bias.values.empty()) mean = 0;
    for (std::int64_t c = 0; c < x.columns; ++c) {
      square += (x(r, c) - mean) * (x(r, c) - mean);
    }
    const double scale =
        1 / std::sqrt(square / static_cast<double>(x.columns) + epsilon);
    for (std::int64_t c = 0; c < x.columns; ++c) {
      y(r, c) = (x(r, c) - mean) * scale * weight(0, c) +
                (bias.values.empty() ? 0 : bias(0, c));
    }
  }
  return y;
}

inline Matrix reference_add(Matrix a, const Matrix& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

// As RowDropout of src/kernels/rows.h defines it.
inline Matrix reference_dropout(Matrix x, double rate, std::uint64_t seed,
                                std::uint32_t site) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    for (std::int64_t c = 0; c < x.columns; ++c) {
      const test::PhiloxWords words = test::philox_reference(
          {{static_cast<std::uint32_t>(c / 64 * 16 + c % 16),
            static_cast<std::uint32_t>(r), site, 0}},
          static_cast<std::uint32_t>(seed & 0xffffffffu),
          static_cast<std::uint32_t>(seed >> 32));
      const double word = words.w[c / 16 % 4];
      x(r, c) =
          word < std::round(rate * 4294967296.0) ? 0 : x(r, c) / (1 - rate);
    }
  }
  return x;
}

// Attention of one matrix's columns to another's, sentence by sentence. Heads
// of q stand at columns [q_first, q_first + heads * dim), and so on.
struct ReferencePacked {
  std::int64_t heads = 1, dim = 1;
  std::int64_t q_first = 0, k_first = 0, v_first = 0;
  std::vector<std::int64_t> q_offsets, kv_offsets;
  bool causal = false;
};
inline Matrix reference_packed_attention(const Matrix& q, const Matrix& kv,
                                         const ReferencePacked& o) {
  Matrix out(q.rows, o.heads * o.dim);
  for (std::size_t s = 1; s < o.q_offsets.size(); ++s) {
    const std::int64_t first = o.kv_offsets[s - 1];
    const std::int64_t keys = o.kv_offsets[s] - first;
    for (std::int64_t r = o.q_offsets[s - 1]; r < o.q_offsets[s]; ++r) {
      const std::int64_t seen =
          o.causal ? std::min(keys, r - o.q_offsets[s - 1] + 1) : keys;
      for (std::int64_t h = 0; h < o.heads; ++h) {
        std::vector<double> weights;
        double sum = 0;
        for (std::int64_t j = 0; j < seen; ++j) {
          double score = 0;
          for (std::int64_t i = 0; i < o.dim; ++i) {
            score += q(r, o.q_first + h * o.dim + i) *
                     kv(first + j, o.k_first + h * o.dim + i);
          }
          weights.push_back(
              std::exp(score / std::sqrt(static_cast<double>(o.dim))));
          sum += weights.back();
        }
        for (std::int64_t j = 0; j < seen; ++j) {
          for (std::int64_t i = 0; i < o.dim; ++i) {
            out(r, h * o.dim + i) += weights[static_cast<std::size_t>(j)] /
                                     sum *
                                     kv(first + j, o.v_first + h * o.dim + i);
          }
        }
      }
    }
  }
  return out;
}

// The sum of the rows' losses.
inline double reference_cross_entropy(const Matrix& scores,
                                      const std::vector<std::int32_t>& targets,
                                      double smoothing) {
  double loss = 0;
  for (std::int64_t r = 0; r < scores.rows; ++r) {
    double sum = 0;
    for (std::int64_t c = 0; c < scores.columns; ++c) {
      sum += std::exp(scores(r, c));
    }
    for (std::int64_t c = 0; c < scores.columns; ++c) {
      const double share =
          smoothing / static_cast<double>(scores.columns) +
          (c == targets[static_cast<std::size_t>(r)] ? 1 - smoothing : 0);
      loss -= share * (scores(r, c) - std::log(sum));
    }
  }
  return loss;
}

}  // namespace regard::testing
