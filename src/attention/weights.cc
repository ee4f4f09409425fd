// SPDX-License-Identifier: Apache-2.0
// The public functions: what all of them do is in weights_job.h.
#include "regard/attention/weights.h"

#include <type_traits>

#include "attention/engine.h"
#include "attention/untyped.h"
#include "attention/weights_job.h"

namespace regard {
namespace {

using detail::CallViews;
using detail::Problem;
using detail::WeightsJob;
using detail::with_real;

}  // namespace

void attention_weights(ConstUntypedView<4> q, ConstUntypedView<4> k,
                       WeightsRequestRef request, AttentionOptionsRef options) {
  constexpr const char* kWhere = "attention_weights";
  const CallViews views{q.dtype, kWhere};
  with_real(q.dtype, kWhere, [&]<typename Real>() {
    const Problem<Real> problem(views.like_q(q, "q"), views.like_q(k, "k"), {},
                                views.of_type<Real>(options, "options"),
                                kWhere);
    WeightsJob<Real>(problem, views.of_type<Real>(request, "the request"))
        .run(nullptr);
  });
}

void attention_with_weights(ConstUntypedView<4> q, ConstUntypedView<4> k,
                            ConstUntypedView<4> v, UntypedView<4> out,
                            WeightsRequestRef request,
                            AttentionOptionsRef options) {
  constexpr const char* kWhere = "attention_with_weights";
  const CallViews views{q.dtype, kWhere};
  with_real(q.dtype, kWhere, [&]<typename Real>() {
    const auto& wanted = views.of_type<Real>(request, "the request");
    const auto& given = views.of_type<Real>(options, "options");
    const Problem<Real> problem(views.like_q(q, "q"), views.like_q(k, "k"),
                                views.like_q(v, "v"), given, kWhere);
    const detail::Elements to = views.like_q(out, "out");
    problem.check_out(to);
    require(
        wanted.rows.empty(), kWhere,
        "rows must be empty, because out has a row for every query; rows has ",
        wanted.rows.size());
    WeightsJob<Real> job(problem, wanted);
    const bool in_one_pass =
        std::is_same_v<Real, float> && detail::engine_available() &&
        given.compute == Compute::kFloat32 && problem.k.extent(2) > 0 &&
        job.asks_for_something();
    if (in_one_pass) return job.run(nullptr, to);
    attention_forward(q, k, v, out, options);
    job.run(nullptr);
  });
}

void stream_attention_weights(ConstUntypedView<4> q, ConstUntypedView<4> k,
                              WeightsVisitorRef visit,
                              WeightsRequestRef request,
                              AttentionOptionsRef options) {
  constexpr const char* kWhere = "stream_attention_weights";
  const CallViews views{q.dtype, kWhere};
  with_real(q.dtype, kWhere, [&]<typename Real>() {
    const Problem<Real> problem(views.like_q(q, "q"), views.like_q(k, "k"), {},
                                views.of_type<Real>(options, "options"),
                                kWhere);
    WeightsJob<Real>(problem, views.of_type<Real>(request, "the request"))
        .run(&views.of_type<Real>(visit, "the visitor"));
  });
}

}  // namespace regard
