// SPDX-License-Identifier: Apache-2.0
#include "attention/backward.h"

#include <array>
#include <cstring>

#include "attention/checks.h"
#include "attention/engine.h"
#include "attention/untyped.h"

namespace regard {
namespace detail {
namespace {

constexpr const char* kWhere = "attention_backward";
using Extents = std::array<std::int64_t, 4>;

void check_gradient(const Elements& gradient, const Extents& shape,
                    const char* name) {
  if (gradient.is_null()) return;
  require(gradient.shape() == shape, kWhere, "the gradient of ", name,
          " must have its shape; the gradient is ", ShapeText{gradient.shape()},
          ", ", name, " is ", ShapeText{shape});
  require(!may_overlap(shape, gradient.strides()), kWhere,
          "the rows of the gradient of ", name,
          " must not overlap; its strides are ", ShapeText{gradient.strides()});
}

template <typename Real>
void check_span(std::span<Real> gradient, std::size_t wanted,
                const char* name) {
  require(gradient.empty() || gradient.size() == wanted, kWhere,
          "the gradient of ", name, " must be as long as ", name, ", which is ",
          wanted, "; it is ", gradient.size());
}

}  // namespace

template <typename Real>
BackwardProblem<Real>::BackwardProblem(
    const BackwardViews<Real>& in, const GradientViews<Real>& out,
    const BasicAttentionOptions<Real>& options)
    : forward(in.q, in.k, in.v, options, kWhere), inputs(in), gradients(out) {
  const Extents shape{in.q.extent(0), in.q.extent(1), in.q.extent(2),
                      forward.d_v};
  require(in.out.shape() == shape && in.d_out.shape() == shape, kWhere,
          "out and d_out must be [batch, heads, q_len, d_v]; out is ",
          ShapeText{in.out.shape()}, ", d_out is ", ShapeText{in.d_out.shape()},
          ", q is ", ShapeText{in.q.shape()}, ", v is ",
          ShapeText{in.v.shape()});
  require(!options.log_sum_exp.is_null() || shape[0] * shape[1] * shape[2] == 0,
          kWhere,
          "options.log_sum_exp must hold what attention_forward wrote; it is "
          "null");
  if (!in.d_log_sum_exp.is_null()) {
    const std::array<std::int64_t, 3> rows{shape[0], shape[1], shape[2]};
    require(in.d_log_sum_exp.shape() == rows, kWhere,
            "d_log_sum_exp must be [batch, heads, q_len]; it is ",
            ShapeText{in.d_log_sum_exp.shape()}, ", q is ",
            ShapeText{in.q.shape()});
  }
  check_gradient(out.q, in.q.shape(), "q");
  check_gradient(out.k, in.k.shape(), "k");
  check_gradient(out.v, in.v.shape(), "v");
  require(out.bias.is_null() || !options.bias.is_null(), kWhere,
          "a gradient of bias needs a bias; there is none");
  check_gradient(Elements(UntypedView<4>(out.bias)), options.bias.shape(),
                 "bias");
  check_span(out.alibi_slopes, options.alibi_slopes.size(), "alibi_slopes");
  check_span(out.sinks, options.sinks.size(), "sinks");
  check_span(out.head_scales, options.head_scales.size(), "head_scales");
}

template struct BackwardProblem<float>;
template struct BackwardProblem<double>;

namespace {

void fill_zero(const Elements& view) {
  if (view.size() == 0) return;
  for (std::int64_t a = 0; a < view.extent(0); ++a) {
    for (std::int64_t b = 0; b < view.extent(1); ++b) {
      for (std::int64_t c = 0; c < view.extent(2); ++c) {
        std::memset(view.at(a, b, c), 0, view.row_bytes());
      }
    }
  }
}

template <typename Real>
void backward(const BackwardViews<Real>& inputs,
              const GradientViews<Real>& gradients,
              const BasicAttentionOptions<Real>& options) {
  const BackwardProblem<Real> problem(inputs, gradients, options);
  if constexpr (std::is_same_v<Real, double>) {
    require(options.compute == Compute::kFloat32, kWhere,
            "compute in bf16 is for float, bf16 and fp16; q is double");
  }
  const EntryMasks<Real> masks(problem.forward);
  const Elements bias(UntypedView<4>(gradients.bias));
  if (problem.forward.heads == 0) {
    // No head reads these keys: nothing below would come to them.
    fill_zero(gradients.k);
    fill_zero(gradients.v);
    fill_zero(bias);
    return;
  }
  if constexpr (std::is_same_v<Real, float>) {
    if (engine_available() && options.compute == Compute::kFloat32) {
      if (!problem.bias_of_pairs()) fill_zero(bias);
      return engine_backward(problem, masks);
    }
  }
  fill_zero(bias);
  if constexpr (std::is_same_v<Real, float>) {
    if (engine_available()) return bf16_backward(problem, masks);
  }
  plain_backward(problem, masks);
}

}  // namespace
}  // namespace detail

void attention_backward(const UntypedBackwardInputs& inputs,
                        const UntypedGradients& gradients,
                        AttentionOptionsRef options) {
  using detail::kWhere;
  const detail::CallViews views{inputs.q.dtype, kWhere};
  detail::with_real(inputs.q.dtype, kWhere, [&]<typename Real>() {
    const detail::BackwardViews<Real> in{
        .q = views.like_q(inputs.q, "q"),
        .k = views.like_q(inputs.k, "k"),
        .v = views.like_q(inputs.v, "v"),
        .out = views.like_q(inputs.out, "out"),
        .d_out = views.like_q(inputs.d_out, "d_out"),
        .d_log_sum_exp =
            views.real<Real>(inputs.d_log_sum_exp, "d_log_sum_exp")};
    const auto per_head = [&](const UntypedView<1>& view, const char* name) {
      const auto values = views.real<Real>(view, name);
      return std::span(values.data(), static_cast<std::size_t>(values.size()));
    };
    const detail::GradientViews<Real> out{
        .q = views.like_q(gradients.q, "the gradient of q"),
        .k = views.like_q(gradients.k, "the gradient of k"),
        .v = views.like_q(gradients.v, "the gradient of v"),
        .bias = views.real<Real>(gradients.bias, "the gradient of bias"),
        .alibi_slopes =
            per_head(gradients.alibi_slopes, "the gradient of alibi_slopes"),
        .sinks = per_head(gradients.sinks, "the gradient of sinks"),
        .head_scales =
            per_head(gradients.head_scales, "the gradient of head_scales")};
    detail::backward(in, out, views.of_type<Real>(options, "options"));
  });
}

}  // namespace regard
