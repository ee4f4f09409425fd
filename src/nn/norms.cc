// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/norms.h"

#include <algorithm>
#include <cmath>

#include "ops/norms.h"
#include "regard/core/error.h"

namespace regard::nn {
namespace {

using Rows = TensorView<const float, 2>;
using Values = TensorView<const float, 1>;

void check_length(const char* where, const char* name, const Values& values,
                  std::int64_t length) {
  require(values.is_null() || values.extent(0) == length, where, name,
          " must be [", length, "]; it is ", ShapeText{values.shape()});
}

void check_same(const char* where, const char* name, const Rows& x,
                const Rows& other) {
  require(other.shape() == x.shape(), where, name,
          " must have the shape of x; it is ", ShapeText{other.shape()},
          ", x is ", ShapeText{x.shape()});
}

// Calls body(begin, end) for blocks of `count` items that each have `each`
// elements, on threads where that pays.
template <typename Body>
void in_blocks(std::int64_t count, std::int64_t each, const Threads& threads,
               const Body& body) {
  constexpr std::int64_t kWorthATask = 1 << 15;
  const std::int64_t block =
      std::max<std::int64_t>(1, kWorthATask / std::max<std::int64_t>(1, each));
  parallel_for(threads, (count + block - 1) / block, [&](std::int64_t task) {
    body(task * block, std::min(count, (task + 1) * block));
  });
}

void check_statistics(const char* where, const NormOptions& options,
                      std::int64_t rows) {
  require(std::isfinite(options.epsilon) && options.epsilon >= 0, where,
          "epsilon must be finite and not negative; it is ", options.epsilon);
  check_length(where, "mean", options.mean, rows);
  check_length(where, "rstd", options.rstd, rows);
}

void forward(const char* where, ops::Norm kind, const Rows& x,
             const Values& weight, const Values& bias,
             const TensorView<float, 2>& out, const NormOptions& options) {
  const std::int64_t rows = x.extent(0), dim = x.extent(1);
  check_same(where, "out", x, out);
  check_length(where, "weight", weight, dim);
  check_length(where, "bias", bias, dim);
  check_statistics(where, options, rows);
  in_blocks(
      rows, dim, options.threads, [&](std::int64_t begin, std::int64_t end) {
        const kernels::Norm norm{
            .rows = end - begin,
            .dim = dim,
            .x = x.at(begin),
            .x_stride = x.stride(0),
            .gamma = weight.data(),
            .beta = bias.data(),
            .eps = options.epsilon,
            .y = out.at(begin),
            .y_stride = out.stride(0),
            .mean = options.mean.is_null() ? nullptr : options.mean.at(begin),
            .rstd = options.rstd.is_null() ? nullptr : options.rstd.at(begin)};
        ops::normalize(kind, norm);
      });
}

void backward(const char* where, ops::Norm kind, const Rows& x,
              const Values& weight, const Rows& d_out,
              const NormGradients& gradients, const NormOptions& options) {
  const std::int64_t rows = x.extent(0), dim = x.extent(1);
  check_same(where, "d_out", x, d_out);
  check_length(where, "weight", weight, dim);
  check_statistics(where, options, rows);
  require(options.rstd.extent(0) == rows &&
              (kind == ops::Norm::kRmsNorm || options.mean.extent(0) == rows),
          where, "backward needs the rstd",
          kind == ops::Norm::kRmsNorm ? "" : " and mean",
          " that forward wrote");
  if (!gradients.d_x.is_null()) check_same(where, "d_x", x, gradients.d_x);
  check_length(where, "d_weight", gradients.d_weight, dim);
  check_length(where, "d_bias", gradients.d_bias, dim);
  const auto job = [&](std::int64_t begin, std::int64_t end) {
    return kernels::NormBackward{
        .rows = end - begin,
        .dim = dim,
        .x = x.at(begin),
        .x_stride = x.stride(0),
        .gamma = weight.data(),
        .mean = kind == ops::Norm::kRmsNorm ? nullptr : options.mean.at(begin),
        .rstd = options.rstd.at(begin),
        .d_y = d_out.at(begin),
        .d_y_stride = d_out.stride(0),
        .d_x = gradients.d_x.is_null() ? nullptr : gradients.d_x.at(begin),
        .d_x_stride = gradients.d_x.stride(0)};
  };
  // First, because d_x may overwrite d_out. Columns go in multiples of a cache
  // line, so that no two threads write to one.
  if (!gradients.d_weight.is_null() || !gradients.d_bias.is_null()) {
    constexpr std::int64_t kLine = 16;
    in_blocks((dim + kLine - 1) / kLine, kLine * rows, options.threads,
              [&](std::int64_t begin, std::int64_t end) {
                kernels::norm_parameter_gradients(
                    job(0, rows), begin * kLine, std::min(dim, end * kLine),
                    gradients.d_weight.data(), gradients.d_bias.data());
              });
  }
  if (gradients.d_x.is_null()) return;
  in_blocks(rows, dim, options.threads,
            [&](std::int64_t begin, std::int64_t end) {
              ops::normalize_backward(kind, job(begin, end));
            });
}

}  // namespace

void rms_norm(Rows x, Values weight, TensorView<float, 2> out,
              const NormOptions& options) {
  require(options.mean.is_null(), "rms_norm",
          "there is no mean to write; mean is ",
          ShapeText{options.mean.shape()});
  forward("rms_norm", ops::Norm::kRmsNorm, x, weight, {}, out, options);
}

void layer_norm(Rows x, Values weight, Values bias, TensorView<float, 2> out,
                const NormOptions& options) {
  forward("layer_norm", ops::Norm::kLayerNorm, x, weight, bias, out, options);
}

void rms_norm_backward(Rows x, Values weight, Rows d_out,
                       const NormGradients& gradients,
                       const NormOptions& options) {
  require(gradients.d_bias.is_null(), "rms_norm_backward",
          "there is no bias; d_bias is ", ShapeText{gradients.d_bias.shape()});
  backward("rms_norm_backward", ops::Norm::kRmsNorm, x, weight, d_out,
           gradients, options);
}

void layer_norm_backward(Rows x, Values weight, Rows d_out,
                         const NormGradients& gradients,
                         const NormOptions& options) {
  backward("layer_norm_backward", ops::Norm::kLayerNorm, x, weight, d_out,
           gradients, options);
}

}  // namespace regard::nn
