// SPDX-License-Identifier: Apache-2.0
#include "attention/bf16.h"
#include "attention/engine.h"
#include "attention/plain.h"
#include "attention/problem.h"
#include "attention/untyped.h"

namespace regard {
namespace {

constexpr const char* kWhere = "attention_forward";

template <typename Real>
void forward(const detail::ConstElements& q, const detail::ConstElements& k,
             const detail::ConstElements& v, const detail::Elements& out,
             const BasicAttentionOptions<Real>& options) {
  const detail::Problem<Real> problem(q, k, v, options, kWhere);
  problem.check_out(out);
  const bool in_bf16 = options.compute == Compute::kBFloat16;
  if constexpr (std::is_same_v<Real, double>) {
    require(!in_bf16, problem.where,
            "compute in bf16 is for float, bf16 and fp16; q is double");
  } else if (detail::engine_available()) {
    return in_bf16 ? detail::bf16_forward(problem, out)
                   : detail::engine_forward(problem, out);
  }
  detail::plain_forward(problem, out);
}

}  // namespace

void attention_forward(ConstUntypedView<4> q, ConstUntypedView<4> k,
                       ConstUntypedView<4> v, UntypedView<4> out,
                       AttentionOptionsRef options) {
  const detail::CallViews views{q.dtype, kWhere};
  detail::with_real(q.dtype, kWhere, [&]<typename Real>() {
    forward<Real>(views.like_q(q, "q"), views.like_q(k, "k"),
                  views.like_q(v, "v"), views.like_q(out, "out"),
                  views.of_type<Real>(options, "options"));
  });
}

}  // namespace regard
