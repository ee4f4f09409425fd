// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <type_traits>

#include "regard/attention/attention.h"

namespace regard {

// What the forward pass worked on and gave, and the gradient that came back.
template <typename T>
struct BackwardInputs {
  using Real = detail::RealOf<T>;

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

// The same where the types of elements are known at run time: those that are T
// above are of the type of q, those that are Real are double where q is, and
// float everywhere else.
struct UntypedBackwardInputs {
  ConstUntypedView<4> q{}, k{}, v{}, out{}, d_out{};
  ConstUntypedView<3> d_log_sum_exp{};
};
struct UntypedGradients {
  UntypedView<4> q{}, k{}, v{}, bias{};
  UntypedView<1> alibi_slopes{}, sinks{}, head_scales{};
};
void attention_backward(const UntypedBackwardInputs& inputs,
                        const UntypedGradients& gradients,
                        AttentionOptionsRef options);

namespace detail {

template <typename T>
void typed_backward(const BackwardInputs<T>& i, const Gradients<T>& g,
                    AttentionOptionsRef options) {
  attention_backward(
      UntypedBackwardInputs{
          ConstUntypedView<4>(i.q), ConstUntypedView<4>(i.k),
          ConstUntypedView<4>(i.v), ConstUntypedView<4>(i.out),
          ConstUntypedView<4>(i.d_out), ConstUntypedView<3>(i.d_log_sum_exp)},
      UntypedGradients{UntypedView<4>(g.q), UntypedView<4>(g.k),
                       UntypedView<4>(g.v), UntypedView<4>(g.bias),
                       UntypedView<1>(g.alibi_slopes), UntypedView<1>(g.sinks),
                       UntypedView<1>(g.head_scales)},
      options);
}

}  // namespace detail

inline void attention_backward(const BackwardInputs<float>& inputs,
                               const Gradients<float>& gradients,
                               const AttentionOptions& options) {
  detail::typed_backward(inputs, gradients, options);
}
inline void attention_backward(const BackwardInputs<BFloat16>& inputs,
                               const Gradients<BFloat16>& gradients,
                               const AttentionOptions& options) {
  detail::typed_backward(inputs, gradients, options);
}
inline void attention_backward(const BackwardInputs<Float16>& inputs,
                               const Gradients<Float16>& gradients,
                               const AttentionOptions& options) {
  detail::typed_backward(inputs, gradients, options);
}
inline void attention_backward(const BackwardInputs<double>& inputs,
                               const Gradients<double>& gradients,
                               const AttentionOptionsF64& options) {
  detail::typed_backward(inputs, gradients, options);
}

}  // namespace regard
