// SPDX-License-Identifier: Apache-2.0
#include "nn/multi_head_attention_config.h"

#include <algorithm>
#include <cmath>

#include "regard/core/error.h"

namespace regard::nn::detail {
namespace {

constexpr const char* kWhere = "MultiHeadAttention";
// No width comes near this, and products of two of them stay within 63 bits.
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 30;

void require_width(std::int64_t width, const char* name) {
  require(width > 0 && width <= kMaxWidth, kWhere, name,
          " must be from 1 to 2^30; it is ", width);
}

float inverse_root(std::int64_t width) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
}

}  // namespace

MultiHeadAttentionConfig resolved(MultiHeadAttentionConfig c) {
  require_width(c.model_dim, "model_dim");
  require_width(c.heads, "heads");
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  require(c.kv_heads > 0 && c.heads % c.kv_heads == 0, kWhere,
          "kv_heads must divide heads; heads is ", c.heads, ", kv_heads is ",
          c.kv_heads);
  if (c.key_dim == 0) c.key_dim = c.model_dim;
  if (c.value_dim == 0) c.value_dim = c.model_dim;
  if (c.head_dim == 0) {
    require(c.model_dim % c.heads == 0, kWhere,
            "heads must divide model_dim if head_dim is not given; model_dim "
            "is ",
            c.model_dim, ", heads is ", c.heads);
    c.head_dim = c.model_dim / c.heads;
  }
  if (c.value_head_dim == 0) c.value_head_dim = c.head_dim;
  require_width(c.key_dim, "key_dim");
  require_width(c.value_dim, "value_dim");
  require_width(c.head_dim, "head_dim");
  require_width(c.value_head_dim, "value_head_dim");
  const std::int64_t widest = std::max(c.head_dim, c.value_head_dim);
  require(widest <= kMaxWidth / c.heads, kWhere,
          "heads times head_dim must be from 1 to 2^30; heads is ", c.heads,
          ", the wider head_dim is ", widest);
  require(c.dropout >= 0 && c.dropout < 1, kWhere,
          "dropout must be in [0, 1); it is ", c.dropout);
  require(!c.scale || std::isfinite(*c.scale), kWhere,
          "scale must be finite; it is ", c.scale.value_or(0.0f));
  return c;
}

ParameterSpecs parameter_specs(const MultiHeadAttentionConfig& c) {
  using Start = ParameterSpec::Start;
  const Widths w(c);
  ParameterSpecs specs;
  // One in_proj_weight instead of three, where all have one width.
  if (c.key_dim == c.model_dim && c.value_dim == c.model_dim) {
    specs["in_proj_weight"] = {{w.q + w.k + w.v, c.model_dim},
                               Start::kXavierUniform};
  } else {
    specs["q_proj_weight"] = {{w.q, c.model_dim}, Start::kXavierUniform};
    specs["k_proj_weight"] = {{w.k, c.key_dim}, Start::kXavierUniform};
    specs["v_proj_weight"] = {{w.v, c.value_dim}, Start::kXavierUniform};
  }
  // nn.Linear's rule, kaiming_uniform(a = sqrt(5)): 1 / sqrt(fan_in).
  specs["out_proj.weight"] = {
      {c.model_dim, w.attended}, Start::kUniform, inverse_root(w.attended)};
  if (c.bias) {
    specs["in_proj_bias"] = {{w.q + w.k + w.v}};
    specs["out_proj.bias"] = {{c.model_dim}};
  }
  if (c.bias_kv) {
    // Xavier-normal. PyTorch counts a [1, 1, width] as fan_in = fan_out =
    // width.
    specs["bias_k"] = {{1, 1, w.k}, Start::kNormal, inverse_root(w.k)};
    specs["bias_v"] = {{1, 1, w.v}, Start::kNormal, inverse_root(w.v)};
  }
  if (c.score == Score::kCosine) {
    specs["cosine_scale"] = {{c.heads}, Start::kConstant, 10.0f};
  }
  return specs;
}

}  // namespace regard::nn::detail
