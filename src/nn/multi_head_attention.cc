// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/multi_head_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <utility>
#include <vector>

#include "nn/activations.h"
#include "nn/appended_key.h"
#include "nn/parameters.h"
#include "nn/products.h"
#include "regard/attention/weights.h"
#include "regard/core/aligned_buffer.h"
#include "regard/core/error.h"

namespace regard::nn {
namespace {

using detail::Activations;
using detail::Inputs;

constexpr const char* kForward = "MultiHeadAttention::forward";

void check_inputs(const MultiHeadAttentionConfig& c, const Inputs& in) {
  require(in.query.extent(2) == c.model_dim, kForward,
          "query must be [batch, q_len, ", c.model_dim, "]; it is ",
          to_string(in.query.shape()));
  require(in.key.extent(2) == c.key_dim && in.key.extent(0) == in.batch(),
          kForward, "key must be [", in.batch(), ", kv_len, ", c.key_dim,
          "], with the query's batch; it is ", to_string(in.key.shape()));
  require(in.value.extent(2) == c.value_dim &&
              in.value.extent(0) == in.batch() &&
              in.value.extent(1) == in.kv_len(),
          kForward, "value must be [", in.batch(), ", ", in.kv_len(), ", ",
          c.value_dim, "], with the key's batch and length; it is ",
          to_string(in.value.shape()));
}

void check_outputs(const MultiHeadAttentionConfig& c, const Inputs& in,
                   std::int64_t all_keys, const TensorView<float, 3>& out,
                   const MultiHeadAttentionOptions& options) {
  require(out.shape() == in.query.shape(), kForward,
          "out must have the query's shape; out is ", to_string(out.shape()),
          ", query is ", to_string(in.query.shape()));
  const std::array per_head{in.batch(), c.heads, in.q_len(), all_keys};
  require(options.weights.is_null() || options.weights.shape() == per_head,
          kForward, "weights must be ", to_string(per_head),
          ", [batch, heads, q_len, all_keys]; they are ",
          to_string(options.weights.shape()));
  const std::array average{in.batch(), in.q_len(), all_keys};
  require(options.average_weights.is_null() ||
              options.average_weights.shape() == average,
          kForward, "average_weights must be ", to_string(average),
          ", [batch, q_len, all_keys]; they are ",
          to_string(options.average_weights.shape()));
}

// The key of bias_k and bias_v joins the attention over the keys passed in.
void merge_appended_key(const MultiHeadAttentionConfig& c,
                        const StateDict& parameters, const Activations& acts,
                        const AttentionOptions& attention) {
  detail::append_key(detail::appended_key(c, parameters, acts, attention),
                     acts.attended.heads(c.heads), acts.log_sum_exp.rows(),
                     acts.appended_weight.rows(), attention.threads);
}

// The weight of the zero key: its score is 0.
float zero_key_weight(float log_sum_exp) {
  return static_cast<float>(std::exp(-double{log_sum_exp}));
}

// Every head's weights: those of the keys passed in, then the appended ones.
void write_head_weights(const MultiHeadAttentionConfig& c,
                        const Activations& acts,
                        const AttentionOptions& attention,
                        TensorView<float, 4> weights) {
  const TensorView<float, 4> k = acts.k.heads(c.kv_heads);
  const std::int64_t kv_len = k.extent(2);
  const TensorView<float, 4> of_keys{
      weights.data(),
      {weights.extent(0), weights.extent(1), weights.extent(2), kv_len},
      weights.strides()};
  attention_weights(acts.q.heads(c.heads), k, of_keys, attention);
  if (!c.bias_kv && !c.add_zero_attn) return;
  const TensorView<float, 3> lse = acts.log_sum_exp.rows();
  const TensorView<float, 3> appended = acts.appended_weight.rows();
  const std::int64_t tasks = weights.extent(0) * c.heads;
  parallel_for(attention.threads, tasks, [&](std::int64_t task) {
    const std::int64_t b = task / c.heads;
    const std::int64_t h = task % c.heads;
    for (std::int64_t i = 0; i < weights.extent(2); ++i) {
      float* row = weights.at(b, h, i);
      if (c.bias_kv) {
        const float rest = 1.0f - appended(b, h, i);
        for (std::int64_t j = 0; j < kv_len; ++j) row[j] *= rest;
        row[kv_len] = appended(b, h, i);
      }
      if (c.add_zero_attn) {
        row[weights.extent(3) - 1] = zero_key_weight(lse(b, h, i));
      }
    }
  });
}

void average(TensorView<const float, 4> weights, TensorView<float, 3> out,
             Threads threads) {
  const std::int64_t heads = weights.extent(1);
  const std::int64_t q_len = weights.extent(2);
  parallel_for(threads, weights.extent(0) * q_len, [&](std::int64_t task) {
    const std::int64_t b = task / q_len;
    const std::int64_t i = task % q_len;
    float* const mean = out.at(b, i);
    std::fill_n(mean, out.extent(2), 0.0f);
    for (std::int64_t h = 0; h < heads; ++h) {
      const float* const row = weights.at(b, h, i);
      for (std::int64_t j = 0; j < out.extent(2); ++j) mean[j] += row[j];
    }
    for (std::int64_t j = 0; j < out.extent(2); ++j) {
      mean[j] /= static_cast<float>(heads);
    }
  });
}

// The mean alone, without room for every head's weights. Not with bias_kv,
// where each head gives another share to the keys passed in.
void write_average_weights(const MultiHeadAttentionConfig& c,
                           const Activations& acts,
                           const AttentionOptions& attention,
                           TensorView<float, 3> out) {
  const TensorView<float, 4> k = acts.k.heads(c.kv_heads);
  const TensorView<float, 4> of_keys{
      out.data(),
      {out.extent(0), 1, out.extent(1), k.extent(2)},
      {out.stride(0), 0, out.stride(1), 1}};
  attention_weights(acts.q.heads(c.heads), k,
                    {.heads = OverHeads::kMean, .weights = of_keys}, attention);
  if (!c.add_zero_attn) return;
  const TensorView<float, 3> lse = acts.log_sum_exp.rows();
  for (std::int64_t b = 0; b < out.extent(0); ++b) {
    for (std::int64_t i = 0; i < out.extent(1); ++i) {
      float sum = 0.0f;
      for (std::int64_t h = 0; h < c.heads; ++h) {
        sum += zero_key_weight(lse(b, h, i));
      }
      out(b, i, k.extent(2)) = sum / static_cast<float>(c.heads);
    }
  }
}

// The forms of the weights that were asked for.
void write_weights(const MultiHeadAttentionConfig& c, const Activations& acts,
                   const AttentionOptions& attention,
                   const MultiHeadAttentionOptions& options) {
  TensorView<float, 4> weights = options.weights;
  const TensorView<float, 3> averages = options.average_weights;
  if (weights.is_null() && averages.is_null()) return;
  if (weights.is_null() && !c.bias_kv) {
    return write_average_weights(c, acts, attention, averages);
  }
  AlignedBuffer memory;
  if (weights.is_null()) {
    const std::array shape{averages.extent(0), c.heads, averages.extent(1),
                           averages.extent(2)};
    memory = AlignedBuffer(static_cast<std::size_t>(element_count(shape)) *
                           sizeof(float));
    weights = {reinterpret_cast<float*>(memory.data()), shape};
  }
  write_head_weights(c, acts, attention, weights);
  if (!averages.is_null()) average(weights, averages, options.threads);
}

TensorView<const float, 3> batched(TensorView<const float, 2> view) {
  return {
      view.data(), {1, view.extent(0), view.extent(1)}, {0, view.stride(0), 1}};
}

}  // namespace

MultiHeadAttentionContext::MultiHeadAttentionContext() = default;
MultiHeadAttentionContext::~MultiHeadAttentionContext() = default;
MultiHeadAttentionContext::MultiHeadAttentionContext(
    MultiHeadAttentionContext&&) noexcept = default;
MultiHeadAttentionContext& MultiHeadAttentionContext::operator=(
    MultiHeadAttentionContext&&) noexcept = default;

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionConfig& config,
                                       std::uint64_t seed)
    : config_(detail::resolved(config)),
      parameters_(detail::initial_parameters(config_, seed)) {
  pack();
}

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionConfig& config,
                                       StateDict parameters)
    : config_(detail::resolved(config)), parameters_(std::move(parameters)) {
  detail::check_parameters(config_, parameters_);
  pack();
}

struct MultiHeadAttention::Bf16Weights {
  std::once_flag packed;
  Tensor q, k, v, out;
};

const MultiHeadAttention::Bf16Weights& MultiHeadAttention::bf16_weights()
    const {
  std::call_once(bf16_->packed, [&] {
    const detail::Widths w(config_);
    bf16_->q = detail::packed_bf16_weight(
        detail::weight_rows(parameters_, "q_proj_weight", 0, w.q));
    bf16_->k = detail::packed_bf16_weight(
        detail::weight_rows(parameters_, "k_proj_weight", w.q, w.k));
    bf16_->v = detail::packed_bf16_weight(
        detail::weight_rows(parameters_, "v_proj_weight", w.q + w.k, w.v));
    bf16_->out = detail::packed_bf16_weight(
        parameters_.at("out_proj.weight").view<float, 2>());
  });
  return *bf16_;
}

void MultiHeadAttention::pack() {
  bf16_ = std::make_shared<Bf16Weights>();
  const detail::Widths w(config_);
  packed_q_ = detail::packed_weight(
      detail::weight_rows(parameters_, "q_proj_weight", 0, w.q));
  packed_k_ = detail::packed_weight(
      detail::weight_rows(parameters_, "k_proj_weight", w.q, w.k));
  packed_v_ = detail::packed_weight(
      detail::weight_rows(parameters_, "v_proj_weight", w.q + w.k, w.v));
  packed_out_ =
      detail::packed_weight(parameters_.at("out_proj.weight").view<float, 2>());
}

void MultiHeadAttention::forward(
    TensorView<const float, 3> query, TensorView<const float, 3> key,
    TensorView<const float, 3> value, TensorView<float, 3> out,
    const MultiHeadAttentionOptions& options) const {
  const Inputs in{query, key, value};
  check_inputs(config_, in);
  const std::int64_t all_keys = in.kv_len() + appended_keys();
  check_outputs(config_, in, all_keys, out, options);
  const bool in_bf16 = options.compute == Compute::kBFloat16;
  require(!in_bf16 || options.context == nullptr, kForward,
          "compute in bf16 is for inference; a context for backward came");
  const auto packed = [&](const Tensor& weight, Tensor Bf16Weights::*rounded) {
    return in_bf16 ? &(bf16_weights().*rounded) : &weight;
  };
  const detail::Widths w(config_);
  Activations acts(in, w, config_.heads);

  // 1. Q, K and V, row by row: the heads are slices of the rows.
  const std::span<const float> in_bias =
      detail::values_of(parameters_, "in_proj_bias");
  const auto bias_at = [&](std::int64_t begin) {
    return in_bias.empty() ? nullptr : in_bias.data() + begin;
  };
  const std::array products{
      detail::Product{in.query, packed(packed_q_, &Bf16Weights::q), bias_at(0),
                      acts.q.rows()},
      detail::Product{in.key, packed(packed_k_, &Bf16Weights::k), bias_at(w.q),
                      acts.k.rows()},
      detail::Product{in.value, packed(packed_v_, &Bf16Weights::v),
                      bias_at(w.q + w.k), acts.v.rows()}};
  detail::multiply(products, options.threads);

  // 2. The heads' attention, back into rows.
  const std::vector<float> zeros(static_cast<std::size_t>(config_.heads));
  AttentionOptions attention =
      detail::attention_options(config_, parameters_, zeros, options);
  if (appended_keys() > 0 || options.context != nullptr) {
    attention.log_sum_exp = acts.log_sum_exp.rows();
  }
  attention_forward(acts.q.heads(config_.heads), acts.k.heads(config_.kv_heads),
                    acts.v.heads(config_.kv_heads),
                    acts.attended.heads(config_.heads), attention);
  attention.log_sum_exp = {};
  if (config_.bias_kv) {
    merge_appended_key(config_, parameters_, acts, attention);
  }
  write_weights(config_, acts, attention, options);

  // 3. The output projection.
  const std::span<const float> out_bias =
      detail::values_of(parameters_, "out_proj.bias");
  const std::array last{detail::Product{acts.attended.rows(),
                                        packed(packed_out_, &Bf16Weights::out),
                                        out_bias.data(), out}};
  detail::multiply(last, options.threads);
  if (options.context != nullptr) {
    options.context->saved_ =
        std::make_unique<MultiHeadAttentionContext::Saved>(
            MultiHeadAttentionContext::Saved{in, options, std::move(acts)});
  }
}

void MultiHeadAttention::set_parameters(StateDict parameters) {
  detail::check_parameters(config_, parameters);
  parameters_ = std::move(parameters);
  pack();
}

void MultiHeadAttention::forward(
    TensorView<const float, 2> query, TensorView<const float, 2> key,
    TensorView<const float, 2> value, TensorView<float, 2> out,
    const MultiHeadAttentionOptions& options) const {
  const TensorView<float, 3> batched_out{
      out.data(), {1, out.extent(0), out.extent(1)}, {0, out.stride(0), 1}};
  forward(batched(query), batched(key), batched(value), batched_out, options);
}

}  // namespace regard::nn
