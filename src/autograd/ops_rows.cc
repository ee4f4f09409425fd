// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "kernels/rows.h"
#include "ops/rows.h"
#include "regard/autograd/operations.h"
#include "regard/core/error.h"

namespace regard::autograd {
namespace {

constexpr const char* kMean = "autograd::mean_rows";

template <typename Work>
void over_elements(Tape& tape, const Variable& y, const Work& work) {
  ops::over_row_blocks(tape.threads(), y.rows(), ops::kRowBlock,
                       [&](std::int64_t begin, std::int64_t end) {
                         work(begin * y.columns(), end * y.columns());
                       });
}

// y[s] = 1 / n * sum of x[r] over the n rows of sentence s.
struct MeanStep {
  Tape* tape = nullptr;
  Variable x, y;
  std::vector<std::int64_t> offsets;

  void operator()() const {
    const std::shared_ptr<float> d_y = tape->take_gradient(y);
    if (d_y == nullptr) return;
    float* const d_x = tape->gradient_sum(x);
    if (d_x == nullptr) return;
    const std::int64_t width = y.columns();
    ops::over_row_blocks(
        tape->threads(), y.rows(), 1, [&](std::int64_t s, std::int64_t) {
          const auto i = static_cast<std::size_t>(s);
          const float share =
              1.0f / static_cast<float>(offsets[i + 1] - offsets[i]);
          for (std::int64_t r = offsets[i]; r < offsets[i + 1]; ++r) {
            kernels::add_scaled(d_y.get() + s * width, share, width,
                                d_x + r * width);
          }
        });
  }
};

// y = a * b
struct MultiplyStep {
  Tape* tape = nullptr;
  Variable a, b, y;

  void operator()() const {
    const std::shared_ptr<float> d_y = tape->take_gradient(y);
    if (d_y == nullptr) return;
    const auto give = [&](const Variable& to, const Variable& other) {
      float* const d = tape->gradient_sum(to);
      if (d == nullptr) return;
      over_elements(*tape, y, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          d[i] += d_y.get()[i] * other.data()[i];
        }
      });
    };
    give(a, b);
    give(b, a);
  }
};

}  // namespace

Variable multiply(Tape& tape, const Variable& a, const Variable& b) {
  require(a.rows() == b.rows() && a.columns() == b.columns(),
          "autograd::multiply", "a and b must have the same shape; they are [",
          a.rows(), ", ", a.columns(), "] and [", b.rows(), ", ", b.columns(),
          "]");
  Variable y = tape.result(a.rows(), a.columns(),
                           a.needs_gradient() || b.needs_gradient());
  float* const to = y.mutable_data();
  over_elements(tape, y, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      to[i] = a.data()[i] * b.data()[i];
  });
  if (y.needs_gradient()) {
    tape.record(MultiplyStep{&tape, a, b, y.without_values()});
  }
  return y;
}

Variable gather_rows(Tape& tape, const Variable& x,
                     std::span<const std::int32_t> rows,
                     const ElementDropout& dropout) {
  for (const std::int32_t row : rows) {
    require(row >= 0 && row < x.rows(), "autograd::gather_rows",
            "a row must lie in 0 .. ", x.rows() - 1, "; got ", row);
  }
  // The rows of any matrix are looked up as those of a table are.
  return embedding(tape, x, rows, {.dropout = dropout});
}

Variable mean_rows(Tape& tape, const Variable& x,
                   std::span<const std::int64_t> offsets) {
  require(
      !offsets.empty() && offsets.front() == 0 && offsets.back() == x.rows(),
      kMean, "offsets must start at 0 and end at the ", x.rows(),
      " rows of x; they are ", ShapeText{offsets});
  for (std::size_t s = 1; s < offsets.size(); ++s) {
    require(offsets[s] > offsets[s - 1], kMean,
            "no sentence may be empty; sentence ", s - 1, " is");
  }
  const std::int64_t width = x.columns();
  Variable y = tape.result(static_cast<std::int64_t>(offsets.size()) - 1, width,
                           x.needs_gradient());
  float* const to = y.mutable_data();
  ops::over_row_blocks(
      tape.threads(), y.rows(), 1, [&](std::int64_t s, std::int64_t) {
        const auto i = static_cast<std::size_t>(s);
        float* const sum = to + s * width;
        std::fill_n(sum, width, 0.0f);
        kernels::add_column_sums(x.data() + offsets[i] * width, width,
                                 offsets[i + 1] - offsets[i], width, sum);
        const auto length = static_cast<float>(offsets[i + 1] - offsets[i]);
        kernels::scale_add(sum, 1.0f / length, nullptr, width, sum);
      });
  if (y.needs_gradient()) {
    tape.record(MeanStep{&tape, x.without_values(), y.without_values(),
                         std::vector(offsets.begin(), offsets.end())});
  }
  return y;
}

}  // namespace regard::autograd
