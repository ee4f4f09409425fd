// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "regard/nn/multi_head_attention.h"
#include "regard/nn/parameters.h"

namespace regard::nn::detail {

// The widths of the projections' results.
struct Widths {
  explicit Widths(const MultiHeadAttentionConfig& c)
      : q(c.heads * c.head_dim),
        k(c.kv_heads * c.head_dim),
        v(c.kv_heads * c.value_head_dim),
        attended(c.heads * c.value_head_dim) {}

  std::int64_t q, k, v, attended;
};

// The config with every 0 replaced. Throws InvalidArgument, in the name of
// MultiHeadAttention, for one that makes no sense.
MultiHeadAttentionConfig resolved(MultiHeadAttentionConfig config);

// The parameters that a resolved config demands.
ParameterSpecs parameter_specs(const MultiHeadAttentionConfig& config);

}  // namespace regard::nn::detail
