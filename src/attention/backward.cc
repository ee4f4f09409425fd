// SPDX-License-Identifier: Apache-2.0
#include "attention/backward.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "attention/engine.h"
#include "attention/untyped.h"

namespace regard {
namespace detail {
namespace {

constexpr const char* kWhere = "attention_backward";

// Whether two elements may be one: then threads would write it at once. Each
// dimension must step over all that smaller steps reach.
template <typename T>
bool may_overlap(const TensorView<T, 4>& view) {
  if (view.size() == 0) return false;
  std::array<int, 4> dims{0, 1, 2, 3};
  const auto step = [&](int dim) { return std::abs(view.stride(dim)); };
  std::sort(dims.begin(), dims.end(),
            [&](int a, int b) { return step(a) < step(b); });
  std::int64_t reach = 0;
  for (const int dim : dims) {
    if (view.extent(dim) == 1) continue;
    if (step(dim) <= reach) return true;
    reach += (view.extent(dim) - 1) * step(dim);
  }
  return false;
}

template <typename T>
void check_gradient(const TensorView<T, 4>& gradient,
                    const std::array<std::int64_t, 4>& shape,
                    const char* name) {
  if (gradient.is_null()) return;
  require(gradient.shape() == shape, kWhere, "the gradient of ", name,
          " must have its shape; the gradient is ", ShapeText{gradient.shape()},
          ", ", name, " is ", ShapeText{shape});
  require(!may_overlap(gradient), kWhere, "the rows of the gradient of ", name,
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

template <typename T>
BackwardProblem<T>::BackwardProblem(const BackwardInputs<T>& in,
                                    const Gradients<T>& out,
                                    const OptionsOf<T>& options)
    : forward(in.q, in.k, in.v, options, kWhere), inputs(in), gradients(out) {
  const std::array<std::int64_t, 4> shape{in.q.extent(0), in.q.extent(1),
                                          in.q.extent(2), forward.d_v};
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
  check_gradient(out.bias, options.bias.shape(), "bias");
  check_span(out.alibi_slopes, options.alibi_slopes.size(), "alibi_slopes");
  check_span(out.sinks, options.sinks.size(), "sinks");
  check_span(out.head_scales, options.head_scales.size(), "head_scales");
}

template struct BackwardProblem<float>;
template struct BackwardProblem<double>;
template struct BackwardProblem<BFloat16>;
template struct BackwardProblem<Float16>;

namespace {

template <typename T>
void fill_zero(const TensorView<T, 4>& view) {
  if (view.size() == 0) return;
  const std::int64_t n = view.extent(3);
  for (std::int64_t a = 0; a < view.extent(0); ++a) {
    for (std::int64_t b = 0; b < view.extent(1); ++b) {
      for (std::int64_t c = 0; c < view.extent(2); ++c) {
        T* const row = view.at(a, b, c);
        std::fill(row, row + n, T{});
      }
    }
  }
}

template <typename T>
void backward(const BackwardInputs<T>& inputs, const Gradients<T>& gradients,
              const OptionsOf<T>& options) {
  const BackwardProblem<T> problem(inputs, gradients, options);
  if constexpr (std::is_same_v<T, double>) {
    require(options.compute == Compute::kFloat32, kWhere,
            "compute in bf16 is for float, bf16 and fp16; q is double");
  }
  const EntryMasks<T> masks(problem.forward);
  if (problem.forward.heads == 0) {
    // No head reads these keys: nothing below would come to them.
    fill_zero(gradients.k);
    fill_zero(gradients.v);
    fill_zero(gradients.bias);
    return;
  }
  if constexpr (!std::is_same_v<T, double>) {
    if (engine_available() && options.compute == Compute::kFloat32) {
      if (!problem.bias_of_pairs()) fill_zero(gradients.bias);
      return engine_backward(problem, masks);
    }
  }
  fill_zero(gradients.bias);
  if constexpr (!std::is_same_v<T, double>) {
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
  detail::with_element_type(inputs.q.dtype, kWhere, [&]<typename T>() {
    const detail::TypedViews<T> typed{kWhere};
    const BackwardInputs<T> in{
        .q = typed.like_q(inputs.q, "q"),
        .k = typed.like_q(inputs.k, "k"),
        .v = typed.like_q(inputs.v, "v"),
        .out = typed.like_q(inputs.out, "out"),
        .d_out = typed.like_q(inputs.d_out, "d_out"),
        .d_log_sum_exp = typed.real(inputs.d_log_sum_exp, "d_log_sum_exp")};
    const auto per_head = [&](const UntypedView<1>& view, const char* name) {
      const auto values = typed.real(view, name);
      return std::span(values.data(), static_cast<std::size_t>(values.size()));
    };
    const Gradients<T> out{
        .q = typed.like_q(gradients.q, "the gradient of q"),
        .k = typed.like_q(gradients.k, "the gradient of k"),
        .v = typed.like_q(gradients.v, "the gradient of v"),
        .bias = typed.real(gradients.bias, "the gradient of bias"),
        .alibi_slopes =
            per_head(gradients.alibi_slopes, "the gradient of alibi_slopes"),
        .sinks = per_head(gradients.sinks, "the gradient of sinks"),
        .head_scales =
            per_head(gradients.head_scales, "the gradient of head_scales")};
    detail::backward(in, out, detail::of_type<T>(options, kWhere, "options"));
  });
}

}  // namespace regard
