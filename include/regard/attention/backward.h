// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "regard/attention/attention.h"

namespace regard {

// What the forward pass worked on and gave, and the gradient that came back.
template <typename T>
struct BackwardInputs {
  using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;

  TensorView<const T, 4> q{}, k{}, v{};  // as in attention_forward
  TensorView<const T, 4> out{};          // what attention_forward wrote
  TensorView<const T, 4> d_out{};        // [batch, heads, q_len, d_v]
  // The gradient of log_sum_exp, [batch, heads, q_len], if it was used too.
  TensorView<const Real, 3> d_log_sum_exp{};
};

// Where the gradients go; overwritten. A null view or an empty span is not
// wanted.
template <typename T>
struct Gradients {
  using Real = typename BackwardInputs<T>::Real;

  TensorView<T, 4> q{}, k{}, v{};  // shaped like q, k and v
  // Shaped like options.bias: summed over every extent that is 1 there.
  TensorView<Real, 4> bias{};
  std::span<Real> alibi_slopes{}, sinks{}, head_scales{};  // [heads] each
};

// The gradients of attention_forward(q, k, v, out, options). Takes the same
// options as the forward call did; options.log_sum_exp is read: it must hold
// what that call wrote. Dropout is drawn again from its seed, nothing is
// stored.
//
// Memory beyond the arguments does not grow with q_len * kv_len. A row that
// sees no key gives no gradient; a hidden pair neither, whatever stands there.
// The bits do not depend on threads or the batch.
//
// Throws InvalidArgument if shapes or options disagree; nothing is written
// then.
void attention_backward(const BackwardInputs<float>& inputs,
                        const Gradients<float>& gradients,
                        const AttentionOptions& options);
void attention_backward(const BackwardInputs<BFloat16>& inputs,
                        const Gradients<BFloat16>& gradients,
                        const AttentionOptions& options);
void attention_backward(const BackwardInputs<Float16>& inputs,
                        const Gradients<Float16>& gradients,
                        const AttentionOptions& options);
void attention_backward(const BackwardInputs<double>& inputs,
                        const Gradients<double>& gradients,
                        const AttentionOptionsF64& options);

}  // namespace regard
