// SPDX-License-Identifier: Apache-2.0
#include "attention/bf16.h"
#include "attention/engine.h"
#include "attention/plain.h"
#include "attention/problem.h"
#include "attention/untyped.h"

namespace regard {
namespace {

constexpr const char* kWhere = "attention_forward";

template <typename T>
void forward(TensorView<const T, 4> q, TensorView<const T, 4> k,
             TensorView<const T, 4> v, TensorView<T, 4> out,
             const detail::OptionsOf<T>& options) {
  const detail::Problem<T> problem(q, k, v, options, kWhere);
  problem.check_out(out);
  const bool in_bf16 = options.compute == Compute::kBFloat16;
  if constexpr (std::is_same_v<T, double>) {
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
  detail::with_element_type(q.dtype, kWhere, [&]<typename T>() {
    const detail::TypedViews<T> typed{kWhere};
    forward<T>(typed.like_q(q, "q"), typed.like_q(k, "k"), typed.like_q(v, "v"),
               typed.like_q(out, "out"),
               detail::of_type<T>(options, kWhere, "options"));
  });
}

}  // namespace regard
