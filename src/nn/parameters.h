// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regard/nn/multi_head_attention.h"
#include "regard/tensor/tensor.h"

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

// One in_proj_weight instead of three.
inline bool is_fused(const MultiHeadAttentionConfig& c) {
  return c.key_dim == c.model_dim && c.value_dim == c.model_dim;
}

// The config with every 0 replaced. Throws InvalidArgument, in the name of
// MultiHeadAttention, for one that makes no sense.
MultiHeadAttentionConfig resolved(MultiHeadAttentionConfig config);

// The parameters that a resolved config demands, in the order of drawing them.
struct ParameterSpec {
  std::string name;
  Shape shape;
};
std::vector<ParameterSpec> parameter_specs(
    const MultiHeadAttentionConfig& config);

StateDict initial_parameters(const MultiHeadAttentionConfig& config,
                             std::uint64_t seed);

// Throws InvalidArgument unless the names, shapes and types are the demanded.
void check_parameters(const MultiHeadAttentionConfig& config,
                      const StateDict& parameters);

}  // namespace regard::nn::detail
