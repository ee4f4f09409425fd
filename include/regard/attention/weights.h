// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "regard/attention/attention.h"

namespace regard {

// The attention weights, softmax(...) as in attention_forward, before dropout.
//
//   q       [batch, heads,    q_len,  d_k]
//   k       [batch, kv_heads, kv_len, d_k]
//   weights [batch, heads,    q_len,  kv_len]
//
// A hidden pair has weight 0, and so has every pair of a row that sees no key.
// With sinks a row sums to less than 1. options.sequences must be empty.
void attention_weights(TensorView<const float, 4> q,
                       TensorView<const float, 4> k,
                       TensorView<float, 4> weights,
                       const AttentionOptions& options = {});

}  // namespace regard
