// SPDX-License-Identifier: Apache-2.0
#include "regard/attention/attention.h"

#include "capi/arguments.h"
#include "regard/attention/backward.h"
#include "regard/attention/weights.h"

namespace {

using namespace regard;        // NOLINT: the C functions stand outside of it
using namespace regard::capi;  // NOLINT

// body(options), in double where q is and in float everywhere else.
template <typename Body>
void with_options(DType q, const regard_attention_options* given,
                  const char* where, const Body& body) {
  if (q == DType::kFloat64) {
    body(options_of<double>(given, where));
  } else {
    body(options_of<float>(given, where));
  }
}

}  // namespace

regard_status regard_attention_forward(
    const regard_tensor* q, const regard_tensor* k, const regard_tensor* v,
    const regard_tensor* out, const regard_attention_options* options) {
  constexpr const char* kWhere = "regard_attention_forward";
  return guarded([&] {
    const auto q_view = to_const_view<4>(q, kWhere, "q");
    const auto k_view = to_const_view<4>(k, kWhere, "k");
    const auto v_view = to_const_view<4>(v, kWhere, "v");
    const auto out_view = to_view<4>(out, kWhere, "out");
    with_options(q_view.dtype, options, kWhere, [&](const auto& typed) {
      attention_forward(q_view, k_view, v_view, out_view, typed);
    });
  });
}

regard_status regard_attention_weights(
    const regard_tensor* q, const regard_tensor* k,
    const regard_tensor* weights, const regard_attention_options* options) {
  constexpr const char* kWhere = "regard_attention_weights";
  return guarded([&] {
    const auto q_view = to_const_view<4>(q, kWhere, "q");
    const auto k_view = to_const_view<4>(k, kWhere, "k");
    not_null(weights, kWhere, "weights");
    with_options(
        q_view.dtype, options, kWhere,
        [&]<typename Real>(const BasicAttentionOptions<Real>& typed) {
          const BasicWeightsRequest<Real> request{
              .weights = typed_view<Real, 4>(weights, kWhere, "weights")};
          attention_weights(q_view, k_view, request, typed);
        });
  });
}

regard_status regard_attention_backward(
    const regard_backward_inputs* inputs, const regard_gradients* gradients,
    const regard_attention_options* options) {
  constexpr const char* kWhere = "regard_attention_backward";
  return guarded([&] {
    const auto in = read_struct(inputs, kWhere, "inputs");
    const auto out = read_struct(gradients, kWhere, "gradients");
    const auto wanted = [&]<int Rank>(const regard_tensor* tensor,
                                      const char* name) {
      return tensor == nullptr ? UntypedView<Rank>{}
                               : to_view<Rank>(tensor, kWhere, name);
    };
    UntypedBackwardInputs in_views{
        .q = to_const_view<4>(in.q, kWhere, "q"),
        .k = to_const_view<4>(in.k, kWhere, "k"),
        .v = to_const_view<4>(in.v, kWhere, "v"),
        .out = to_const_view<4>(in.out, kWhere, "out"),
        .d_out = to_const_view<4>(in.d_out, kWhere, "d_out")};
    if (in.d_log_sum_exp != nullptr) {
      in_views.d_log_sum_exp =
          to_const_view<3>(in.d_log_sum_exp, kWhere, "d_log_sum_exp");
    }
    const UntypedGradients out_views{
        .q = wanted.operator()<4>(out.q, "the gradient of q"),
        .k = wanted.operator()<4>(out.k, "the gradient of k"),
        .v = wanted.operator()<4>(out.v, "the gradient of v"),
        .bias = wanted.operator()<4>(out.bias, "the gradient of bias"),
        .alibi_slopes = wanted.operator()<1>(out.alibi_slopes,
                                             "the gradient of alibi_slopes"),
        .sinks = wanted.operator()<1>(out.sinks, "the gradient of sinks"),
        .head_scales = wanted.operator()<1>(out.head_scales,
                                            "the gradient of head_scales")};
    with_options(in_views.q.dtype, options, kWhere, [&](const auto& typed) {
      attention_backward(in_views, out_views, typed);
    });
  });
}
