// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "kernels/rows.h"
#include "ops/rows.h"
#include "regard/autograd/operations.h"
#include "regard/core/error.h"

namespace regard::autograd {
namespace {

constexpr const char* kWhere = "autograd::sampled_binary_cross_entropy";

// Eight chains, added in pairs: the same bits on every machine.
float dot(const float* a, const float* b, std::int64_t n) {
  std::array<float, 8> sums{};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (std::size_t l = 0; l < 8; ++l) {
      const auto at = i + static_cast<std::int64_t>(l);
      sums[l] += a[at] * b[at];
    }
  }
  for (std::size_t l = 0; i < n; ++i, ++l) sums[l] += a[i] * b[i];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
         ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// -log s(score) for a target, -log(1 - s(score)) = -log s(-score) for a
// negative, and the derivative by the score: s(score) - 1, or s(score).
struct Term {
  double loss = 0;
  float derivative = 0;
};
Term term_of(float score, bool target) {
  const double z =
      target ? -static_cast<double>(score) : static_cast<double>(score);
  // log(1 + e^z), without overflow.
  const double loss = std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z)));
  const double share = 1 / (1 + std::exp(-z));
  return {loss, static_cast<float>(target ? -share : share)};
}

}  // namespace

double sampled_binary_cross_entropy(Tape& tape, const Variable& x,
                                    const Variable& weight,
                                    std::span<const std::int32_t> targets,
                                    std::span<const std::int32_t> negatives) {
  const std::int64_t width = x.columns();
  require(weight.columns() == width, kWhere,
          "weight must be [vocab, in] with the columns of x; it is [",
          weight.rows(), ", ", weight.columns(), "], x is [", x.rows(), ", ",
          width, "]");
  const std::int64_t rows = std::ssize(targets);
  require(rows == x.rows(), kWhere, "there must be one target a row; x has ",
          x.rows(), " rows, targets are ", rows);
  if (rows == 0) return 0;
  require(negatives.size() % targets.size() == 0, kWhere,
          "there must be as many negatives for each of the ", rows,
          " rows; there are ", negatives.size());
  for (const auto& tokens : {targets, negatives}) {
    for (const std::int32_t token : tokens) {
      require(token >= 0 && token < weight.rows(), kWhere,
              "a target or negative must lie in 0 .. ", weight.rows() - 1,
              "; got ", token);
    }
  }
  const std::int64_t each = std::ssize(negatives) / rows;
  // Candidate c of row r: the target, then its negatives.
  const auto candidate = [&](std::int64_t r, std::int64_t c) {
    return c == 0 ? targets[static_cast<std::size_t>(r)]
                  : negatives[static_cast<std::size_t>(r * each + c - 1)];
  };
  std::vector<double> losses(static_cast<std::size_t>(rows));
  std::vector<float> derivatives(static_cast<std::size_t>(rows * (each + 1)));
  const Tape::Target d_x = tape.gradient_target(x);
  ops::over_row_blocks(
      tape.threads(), rows, ops::kRowBlock,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          const float* const row = x.data() + r * width;
          float* const to = d_x.data ? d_x.data + r * width : nullptr;
          if (to && !d_x.add) std::fill_n(to, width, 0.0f);
          double& loss = losses[static_cast<std::size_t>(r)];
          for (std::int64_t c = 0; c <= each; ++c) {
            const float* const item = weight.data() + candidate(r, c) * width;
            const Term term = term_of(dot(row, item, width), c == 0);
            loss += term.loss;
            derivatives[static_cast<std::size_t>(r * (each + 1) + c)] =
                term.derivative;
            if (to) kernels::add_scaled(item, term.derivative, width, to);
          }
        }
      });
  if (float* const d_weight = tape.gradient_sum(weight)) {
    // Threads share the columns, so that each row of the weight gets its sums
    // in order.
    ops::over_row_blocks(
        tape.threads(), width, ops::kRowBlock,
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t c = 0; c <= each; ++c) {
              kernels::add_scaled(
                  x.data() + r * width + begin,
                  derivatives[static_cast<std::size_t>(r * (each + 1) + c)],
                  end - begin, d_weight + candidate(r, c) * width + begin);
            }
          }
        });
  }
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return sum;
}

}  // namespace regard::autograd
