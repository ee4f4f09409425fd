// SPDX-License-Identifier: Apache-2.0
// The public functions: what all of them do is in weights_job.h.
#include "regard/attention/weights.h"

#include <type_traits>

#include "attention/engine.h"
#include "attention/untyped.h"
#include "attention/weights_job.h"

namespace regard {
namespace {

using detail::of_type;
using detail::Problem;
using detail::RealOf;
using detail::WeightsJob;

template <typename T>
void forward_with_weights(TensorView<const T, 4> q, TensorView<const T, 4> k,
                          TensorView<const T, 4> v, TensorView<T, 4> out,
                          const BasicWeightsRequest<RealOf<T>>& request,
                          const detail::OptionsOf<T>& options) {
  const char* where = "attention_with_weights";
  const Problem<T> problem(q, k, v, options, where);
  problem.check_out(out);
  require(
      request.rows.empty(), where,
      "rows must be empty, because out has a row for every query; rows has ",
      request.rows.size());
  WeightsJob<T> job(problem, request);
  const bool in_one_pass = !std::is_same_v<T, double> &&
                           detail::engine_available() &&
                           options.compute == Compute::kFloat32 &&
                           problem.k.extent(2) > 0 && job.asks_for_something();
  if (in_one_pass) return job.run(nullptr, out);
  attention_forward(q, k, v, out, options);
  job.run(nullptr);
}

}  // namespace

void attention_weights(ConstUntypedView<4> q, ConstUntypedView<4> k,
                       WeightsRequestRef request, AttentionOptionsRef options) {
  constexpr const char* kWhere = "attention_weights";
  detail::with_element_type(q.dtype, kWhere, [&]<typename T>() {
    const detail::TypedViews<T> typed{kWhere};
    const Problem<T> problem(typed.like_q(q, "q"), typed.like_q(k, "k"), {},
                             of_type<T>(options, kWhere, "options"), kWhere);
    WeightsJob<T>(problem, of_type<T>(request, kWhere, "the request"))
        .run(nullptr);
  });
}

void attention_with_weights(ConstUntypedView<4> q, ConstUntypedView<4> k,
                            ConstUntypedView<4> v, UntypedView<4> out,
                            WeightsRequestRef request,
                            AttentionOptionsRef options) {
  constexpr const char* kWhere = "attention_with_weights";
  detail::with_element_type(q.dtype, kWhere, [&]<typename T>() {
    const detail::TypedViews<T> typed{kWhere};
    forward_with_weights<T>(typed.like_q(q, "q"), typed.like_q(k, "k"),
                            typed.like_q(v, "v"), typed.like_q(out, "out"),
                            of_type<T>(request, kWhere, "the request"),
                            of_type<T>(options, kWhere, "options"));
  });
}

void stream_attention_weights(ConstUntypedView<4> q, ConstUntypedView<4> k,
                              WeightsVisitorRef visit,
                              WeightsRequestRef request,
                              AttentionOptionsRef options) {
  constexpr const char* kWhere = "stream_attention_weights";
  detail::with_element_type(q.dtype, kWhere, [&]<typename T>() {
    const detail::TypedViews<T> typed{kWhere};
    const Problem<T> problem(typed.like_q(q, "q"), typed.like_q(k, "k"), {},
                             of_type<T>(options, kWhere, "options"), kWhere);
    WeightsJob<T>(problem, of_type<T>(request, kWhere, "the request"))
        .run(&of_type<T>(visit, kWhere, "the visitor"));
  });
}

}  // namespace regard
