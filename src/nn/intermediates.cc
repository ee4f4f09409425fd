// SPDX-License-Identifier: Apache-2.0
#include "nn/intermediates.h"

#include "attention/checks.h"

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
  return {.q = acts.q.heads(c.heads),
          .key = per_kv_head(values_of(parameters, "bias_k"), c.kv_heads),
          .value = per_kv_head(values_of(parameters, "bias_v"), c.kv_heads),
          .index = acts.k.rows().extent(1),
          .score = c.score,
          .scale = regard::detail::checked_scale(attention, c.head_dim,
                                                 "MultiHeadAttention"),
          .head_scales = attention.head_scales,
          .softcap = attention.softcap,
          .dropout = attention.dropout};
}

}  // namespace regard::nn::detail
