// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "regard/attention/attention.h"
#include "regard/core/threads.h"
#include "regard/tensor/tensor_view.h"

namespace regard::nn::detail {

// The key and value that bias_kv appends, the same for every batch entry. Every
// query sees them, whatever the mask; so they are not appended to K and V,
// where the mask, the bias and ALiBi would have to be stretched over them, but
// merged into the finished attention: a softmax over two sets of keys is the
// mean of their softmaxes, weighed by their denominators.
struct AppendedKey {
  TensorView<const float, 4> q;      // [batch, heads, q_len, head_dim]
  TensorView<const float, 2> key;    // [kv_heads, head_dim]
  TensorView<const float, 2> value;  // [kv_heads, value_head_dim]
  std::int64_t index = 0;            // its place among the keys, for dropout
  Score score = Score::kDot;         // these four as in attention_forward
  float scale = 1.0f;
  std::span<const float> head_scales;
  float softcap = 0.0f;
  Dropout dropout;
};

// Takes the key into `out` [batch, heads, q_len, value_head_dim] and into
// `log_sum_exp` [batch, heads, q_len], which attention_forward wrote, and
// writes its weight, before dropout, to `weight` [batch, heads, q_len].
void append_key(const AppendedKey& appended, TensorView<float, 4> out,
                TensorView<float, 3> log_sum_exp, TensorView<float, 3> weight,
                Threads threads);

// The gradients of the appended key, given what append_key wrote and the
// gradient of out. d_q is added to; d_key and d_value [kv_heads, ...] and
// d_head_scales [heads], if not empty, are added to as well.
struct AppendedKeyGradients {
  TensorView<const float, 4> out;     // [batch, heads, q_len, value_head_dim]
  TensorView<const float, 4> d_out;   // shaped like it
  TensorView<const float, 3> weight;  // [batch, heads, q_len]
  TensorView<float, 4> d_q;
  TensorView<float, 2> d_key, d_value;
  std::span<float> d_head_scales;
};
void append_key_backward(const AppendedKey& appended,
                         const AppendedKeyGradients& gradients);

}  // namespace regard::nn::detail
