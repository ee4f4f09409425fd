// SPDX-License-Identifier: Apache-2.0
#include "autograd/element_dropout.h"
#include "ops/norms.h"
#include "ops/rows.h"
#include "regard/autograd/operations.h"

namespace regard::autograd {
namespace {

using ops::over_row_blocks;

// Rows that pass through all of an operation while they are in the cache. The
// sums of such blocks make the gradients of a norm's parameters.
constexpr std::int64_t kBlock = kernels::kNormRowBlock;

// residual + dropout(branch), and its norm, each if there is one.
struct AddNormStep {
  Tape* tape = nullptr;
  Variable residual, branch;
  Variable sum, normed;  // slots; sum has values if there is a norm
  kernels::RowDropout dropout;
  NormParameters norm;
  std::shared_ptr<float> mean, rstd;  // [rows]

  void operator()() const {
    std::shared_ptr<float> d_normed = tape->take_gradient(normed);
    std::shared_ptr<float> d_sum = tape->take_gradient(sum);
    if (d_normed == nullptr && d_sum == nullptr) return;
    const std::int64_t rows = residual.rows();
    const std::int64_t width = residual.columns();
    const std::int64_t blocks = (rows + kBlock - 1) / kBlock;
    std::shared_ptr<float> partial;  // [blocks, 2, width]
    if (d_normed != nullptr) partial = tape->memory(blocks * 2 * width);
    // The norm's gradient is worked on where it stands.
    const std::shared_ptr<float>& d = d_normed ? d_normed : d_sum;
    const Tape::Target d_branch = tape->gradient_target(branch);
    over_row_blocks(
        tape->threads(), rows, kBlock,
        [&](std::int64_t begin, std::int64_t end) {
          float* const at = d.get() + begin * width;
          const std::int64_t count = (end - begin) * width;
          if (d_normed != nullptr) {
            float* const to = partial.get() + begin / kBlock * 2 * width;
            norm_backward(at, begin, end, to);
            if (d_sum != nullptr) {
              kernels::add_scaled(d_sum.get() + begin * width, 1.0f, count, at);
            }
          }
          if (d_branch.data == nullptr) return;
          float* const to = d_branch.data + begin * width;
          kernels::dropout_add({.rows = end - begin,
                                .width = width,
                                .first_row = begin,
                                .x = at,
                                .residual = d_branch.add ? to : nullptr,
                                .y = to},
                               dropout);
        });
    if (d_normed != nullptr) add_parameter_gradients(partial.get(), blocks);
    tape->give_gradient(residual, d);
  }

  // d is the gradient of the norm, and becomes that of the sum.
  void norm_backward(float* d, std::int64_t begin, std::int64_t end,
                     float* partial) const {
    const std::int64_t width = residual.columns();
    const kernels::NormBackward job{
        .rows = end - begin,
        .dim = width,
        .x = sum.data() + begin * width,
        .x_stride = width,
        .gamma = norm.weight.data(),
        .mean = norm.kind == Norm::kLayerNorm ? mean.get() + begin : nullptr,
        .rstd = rstd.get() + begin,
        .d_y = d,
        .d_y_stride = width,
        .d_x = d,
        .d_x_stride = width};
    kernels::norm_parameter_gradients(job, 0, width, partial, partial + width);
    ops::normalize_backward(norm.kind, job);
  }

  void add_parameter_gradients(const float* partial,
                               std::int64_t blocks) const {
    const std::int64_t width = residual.columns();
    float* const d_weight = tape->gradient_sum(norm.weight);
    float* const d_bias = tape->gradient_sum(norm.bias);
    for (std::int64_t b = 0; b < blocks; ++b) {
      const float* const at = partial + b * 2 * width;
      if (d_weight != nullptr) {
        kernels::add_scaled(at, 1.0f, width, d_weight);
      }
      if (d_bias != nullptr) {
        kernels::add_scaled(at + width, 1.0f, width, d_bias);
      }
    }
  }
};

void check_norm(const NormParameters& norm, std::int64_t width,
                const char* where) {
  require(norm.weight.rows() == 1 && norm.weight.columns() == width, where,
          "the norm's weight must be [1, ", width, "]; it is [",
          norm.weight.rows(), ", ", norm.weight.columns(), "]");
  require(norm.bias.is_null() ||
              (norm.bias.rows() == 1 && norm.bias.columns() == width),
          where, "the norm's bias must be [1, ", width, "]; it is [",
          norm.bias.rows(), ", ", norm.bias.columns(), "]");
  require(norm.kind == Norm::kLayerNorm || norm.bias.is_null(), where,
          "RMS norm must have no bias");
  require(norm.epsilon >= 0, where, "epsilon must not be negative; it is ",
          norm.epsilon);
}

void check_same_shape(const Variable& residual, const Variable& branch,
                      const char* where) {
  require(residual.rows() == branch.rows() &&
              residual.columns() == branch.columns(),
          where, "both terms must have one shape; they are [", residual.rows(),
          ", ", residual.columns(), "] and [", branch.rows(), ", ",
          branch.columns(), "]");
}

// A branch or a norm may be missing, not both.
SumAndNorm run(Tape& tape, const Variable& residual, const Variable& branch,
               const kernels::RowDropout& dropout, const NormParameters& norm) {
  const bool adds = !branch.is_null();
  const bool norms = !norm.weight.is_null();
  const std::int64_t rows = residual.rows();
  const std::int64_t width = residual.columns();
  const bool sum_depends = residual.needs_gradient() || branch.needs_gradient();
  const bool depends =
      sum_depends || norm.weight.needs_gradient() || norm.bias.needs_gradient();
  SumAndNorm out;
  out.sum = adds ? tape.result(rows, width, sum_depends) : residual;
  AddNormStep step{&tape,
                   residual.without_values(),
                   branch.without_values(),
                   {},
                   {},
                   dropout,
                   norm,
                   {},
                   {}};
  if (norms) {
    out.normed = tape.result(rows, width, depends);
    if (out.normed.needs_gradient()) {
      step.rstd = tape.memory(rows);
      if (norm.kind == Norm::kLayerNorm) step.mean = tape.memory(rows);
    }
  }
  float* const sum = out.sum.mutable_data();
  float* const normed = out.normed.mutable_data();
  over_row_blocks(tape.threads(), rows, kBlock,
                  [&](std::int64_t begin, std::int64_t end) {
                    const std::int64_t at = begin * width;
                    if (adds) {
                      kernels::dropout_add({.rows = end - begin,
                                            .width = width,
                                            .first_row = begin,
                                            .x = branch.data() + at,
                                            .residual = residual.data() + at,
                                            .y = sum + at},
                                           dropout);
                    }
                    if (!norms) return;
                    const kernels::Norm job{
                        .rows = end - begin,
                        .dim = width,
                        .x = out.sum.data() + at,
                        .x_stride = width,
                        .gamma = norm.weight.data(),
                        .beta = norm.bias.data(),
                        .eps = norm.epsilon,
                        .y = normed + at,
                        .y_stride = width,
                        .mean = step.mean ? step.mean.get() + begin : nullptr,
                        .rstd = step.rstd ? step.rstd.get() + begin : nullptr};
                    ops::normalize(norm.kind, job);
                  });
  if (!out.sum.needs_gradient() && !out.normed.needs_gradient()) return out;
  step.normed = out.normed.without_values();
  // Without a sum of its own, the gradient that came to `residual` from
  // elsewhere is not this step's to take.
  if (adds) step.sum = norms ? out.sum : out.sum.without_values();
  if (!adds) step.sum = out.sum.without_gradient();
  tape.record(std::move(step));
  return out;
}

}  // namespace

Variable norm(Tape& tape, const Variable& x, const NormParameters& parameters) {
  check_norm(parameters, x.columns(), "autograd::norm");
  return run(tape, x, {}, {}, parameters).normed;
}

Variable add(Tape& tape, const Variable& residual, const Variable& branch,
             const ElementDropout& dropout) {
  constexpr const char* kWhere = "autograd::add";
  check_same_shape(residual, branch, kWhere);
  return run(tape, residual, branch, row_dropout(dropout, kWhere), {}).sum;
}

SumAndNorm add_norm(Tape& tape, const Variable& residual,
                    const Variable& branch, const ElementDropout& dropout,
                    const NormParameters& norm) {
  constexpr const char* kWhere = "autograd::add_norm";
  check_same_shape(residual, branch, kWhere);
  check_norm(norm, residual.columns(), kWhere);
  return run(tape, residual, branch, row_dropout(dropout, kWhere), norm);
}

}  // namespace regard::autograd
