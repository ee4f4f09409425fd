// SPDX-License-Identifier: Apache-2.0
#include "nn/intermediates.h"

#include <cmath>

namespace regard::nn::detail {
namespace {

TensorView<const float, 2> per_kv_head(std::span<const float> values,
                                       std::int64_t kv_heads) {
  return {values.data(),
          {kv_heads, static_cast<std::int64_t>(values.size()) / kv_heads}};
}

}  // namespace

std::span<const float> values_of(const StateDict& parameters,
                                 const char* name) {
  const auto found = parameters.find(name);
  if (found == parameters.end()) return {};
  return found->second.values<float>();
}

TensorView<const float, 2> weight_rows(const StateDict& parameters,
                                       const char* name, std::int64_t begin,
                                       std::int64_t rows) {
  const auto found = parameters.find(name);
  if (found != parameters.end()) return found->second.view<float, 2>();
  const auto fused = parameters.at("in_proj_weight").view<float, 2>();
  return {fused.at(begin), {rows, fused.extent(1)}};
}

AttentionOptions attention_options(const MultiHeadAttentionConfig& c,
                                   const StateDict& parameters,
                                   std::span<const float> zeros,
                                   const MultiHeadAttentionOptions& options) {
  AttentionOptions o;
  o.mask = options.mask;
  o.score = c.score;
  o.scale = c.scale;
  o.head_scales = values_of(parameters, "cosine_scale");
  o.bias = options.bias;
  o.alibi_slopes = options.alibi_slopes;
  o.softcap = options.softcap;
  // A key of zeros has score 0 and adds nothing to the output: a sink of 0.
  if (c.add_zero_attn) o.sinks = zeros;
  if (options.mode == Mode::kTraining) {
    o.dropout = {c.dropout, options.dropout_seed};
  }
  o.threads = options.threads;
  o.compute = options.compute;
  return o;
}

AppendedKey appended_key(const MultiHeadAttentionConfig& c,
                         const StateDict& parameters, const Intermediates& acts,
                         const AttentionOptions& attention) {
  const float usual_scale =
      c.score == Score::kCosine
          ? 1.0f
          : 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  return {.q = acts.q.heads(c.heads),
          .key = per_kv_head(values_of(parameters, "bias_k"), c.kv_heads),
          .value = per_kv_head(values_of(parameters, "bias_v"), c.kv_heads),
          .index = acts.k.rows().extent(1),
          .score = c.score,
          .scale = c.scale.value_or(usual_scale),
          .head_scales = attention.head_scales,
          .softcap = attention.softcap,
          .dropout = attention.dropout};
}

}  // namespace regard::nn::detail
