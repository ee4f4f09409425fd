// SPDX-License-Identifier: Apache-2.0
#include "attention/bf16.h"
#include "attention/engine.h"
#include "attention/plain.h"
#include "attention/problem.h"

namespace regard {
namespace {

template <typename T>
void forward(TensorView<const T, 4> q, TensorView<const T, 4> k,
             TensorView<const T, 4> v, TensorView<T, 4> out,
             const detail::OptionsOf<T>& options) {
  const detail::Problem<T> problem(q, k, v, options, "attention_forward");
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

void attention_forward(TensorView<const float, 4> q,
                       TensorView<const float, 4> k,
                       TensorView<const float, 4> v, TensorView<float, 4> out,
                       const AttentionOptions& options) {
  forward<float>(q, k, v, out, options);
}

void attention_forward(TensorView<const BFloat16, 4> q,
                       TensorView<const BFloat16, 4> k,
                       TensorView<const BFloat16, 4> v,
                       TensorView<BFloat16, 4> out,
                       const AttentionOptions& options) {
  forward<BFloat16>(q, k, v, out, options);
}

void attention_forward(TensorView<const Float16, 4> q,
                       TensorView<const Float16, 4> k,
                       TensorView<const Float16, 4> v,
                       TensorView<Float16, 4> out,
                       const AttentionOptions& options) {
  forward<Float16>(q, k, v, out, options);
}

void attention_forward(TensorView<const double, 4> q,
                       TensorView<const double, 4> k,
                       TensorView<const double, 4> v, TensorView<double, 4> out,
                       const AttentionOptionsF64& options) {
  forward<double>(q, k, v, out, options);
}

}  // namespace regard
