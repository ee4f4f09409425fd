// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "nn/intermediates.h"
#include "ops/product.h"
#include "regard/attention/backward.h"
#include "regard/core/error.h"
#include "regard/nn/multi_head_attention.h"

namespace regard::nn {
namespace {

using detail::Intermediates;
using detail::PooledRows;

constexpr const char* kBackward = "MultiHeadAttention::backward";

void check_shape(const TensorView<float, 3>& gradient,
                 const TensorView<const float, 3>& input, const char* name) {
  require(gradient.is_null() || gradient.shape() == input.shape(), kBackward,
          "the gradient of ", name, " must have its shape; the gradient is ",
          ShapeText{gradient.shape()}, ", ", name, " is ",
          ShapeText{input.shape()});
}

// What another layer saved has other widths, or heads cut elsewhere.
void check_is_of_layer(const detail::Inputs& in, const Intermediates& acts,
                       const MultiHeadAttentionConfig& c) {
  const std::array saved{in.query.extent(2),
                         in.key.extent(2),
                         in.value.extent(2),
                         acts.q.rows().extent(2),
                         acts.k.rows().extent(2),
                         acts.v.rows().extent(2),
                         acts.log_sum_exp.rows().extent(1)};
  const detail::Widths w(c);
  const std::array own{c.model_dim, c.key_dim, c.value_dim, w.q,
                       w.k,         w.v,       c.heads};
  require(saved == own, kBackward,
          "the context must be one that this layer filled: widths of query, "
          "key, value, their projections, and heads are ",
          ShapeText{own}, "; the context has ", ShapeText{saved});
}

// The gradient of a weight: its own tensor, or some rows of the fused one.
TensorView<float, 2> rows_of(StateDict& gradients, const char* name,
                             std::int64_t begin, std::int64_t rows) {
  const auto found = gradients.find(name);
  if (found != gradients.end()) return found->second.view<float, 2>();
  const auto fused = gradients.at("in_proj_weight").view<float, 2>();
  return {fused.at(begin), {rows, fused.extent(1)}};
}

float* values_or_null(StateDict& gradients, const char* name,
                      std::int64_t begin = 0) {
  const auto found = gradients.find(name);
  if (found == gradients.end()) return nullptr;
  return found->second.values<float>().data() + begin;
}

// What of `reuse` fits, and new tensors for the rest. Projections are written
// whole; what is summed up in place starts from zero.
StateDict room_for(const ParameterSpecs& specs, StateDict reuse) {
  StateDict gradients;
  for (const auto& [name, spec] : specs) {
    const auto found = reuse.find(name);
    if (found == reuse.end() || found->second.shape() != spec.shape ||
        found->second.dtype() != DType::kFloat32) {
      gradients.emplace(name, Tensor(spec.shape));
      continue;
    }
    if (spec.shape.size() < 2 || name.starts_with("bias_")) {
      const auto values = found->second.values<float>();
      std::fill(values.begin(), values.end(), 0.0f);
    }
    gradients.insert(reuse.extract(found));
  }
  return gradients;
}

TensorView<float, 2> per_kv_head(StateDict& gradients, const char* name,
                                 std::int64_t kv_heads) {
  const std::span<float> values = gradients.at(name).values<float>();
  return {values.data(),
          {kv_heads, static_cast<std::int64_t>(values.size()) / kv_heads}};
}

// The gradients of what attention_forward read.
struct HeadGradients {
  HeadGradients(const detail::Inputs& in, const detail::Widths& w)
      : q(in.batch(), in.q_len(), w.q),
        k(in.batch(), in.kv_len(), w.k),
        v(in.batch(), in.kv_len(), w.v) {}

  PooledRows q, k, v;
};

// d_input = d_output weight, added to what is there if `add`.
struct InputGradient {
  TensorView<const float, 3> d_output;  // [batch, len, out]
  TensorView<const float, 2> weight;    // [out, in]
  TensorView<float, 3> d_input;         // [batch, len, in]
  bool add = false;
};
void input_gradient(const InputGradient& g, Threads threads) {
  const auto packed = ops::PackedWeights::transposed_for(
      g.d_output.extent(0) * g.d_output.extent(1), g.weight,
      {.pool = &ops::thread_memory_pool(), .threads = threads});
  const std::int64_t count = ops::matrices(g.d_output, g.d_input);
  for (std::int64_t i = 0; i < count; ++i) {
    ops::multiply({.x = ops::matrix(g.d_output, i, count),
                   .weight = &packed,
                   .y = ops::matrix(g.d_input, i, count),
                   .add = g.add},
                  threads);
  }
}

// d_weight = d_output^T input and d_bias = the sum of d_output's rows, over all
// rows in order, so the bits do not depend on threads. d_bias may be null.
struct WeightGradient {
  TensorView<const float, 3> d_output;  // [batch, len, out]
  TensorView<const float, 3> input;     // [batch, len, in]
  TensorView<float, 2> d_weight;        // [out, in]
  float* d_bias = nullptr;              // [out]
};
void weight_gradient(const WeightGradient& g, Threads threads) {
  const std::int64_t out = g.d_weight.extent(0);
  if (g.d_output.extent(0) * g.d_output.extent(1) == 0) {
    for (std::int64_t r = 0; r < out; ++r) {
      std::fill_n(g.d_weight.at(r), g.d_weight.extent(1), 0.0f);
    }
    if (g.d_bias != nullptr) std::fill_n(g.d_bias, out, 0.0f);
    return;
  }
  const std::int64_t count = ops::matrices(g.d_output, g.input);
  for (std::int64_t i = 0; i < count; ++i) {
    ops::add_weight_gradient({.d_y = ops::matrix(g.d_output, i, count),
                              .x = ops::matrix(g.input, i, count),
                              .d_weight = g.d_weight,
                              .d_bias = g.d_bias,
                              .add = i > 0},
                             ops::thread_memory_pool(), threads);
  }
}

// The forward call whose gradients are taken.
struct ForwardCall {
  const MultiHeadAttentionConfig& config;
  const StateDict& parameters;
  const detail::Inputs& in;
  const Intermediates& acts;
  const MultiHeadAttentionOptions& options;
};

// Those of the scores' factor and the appended key go to `gradients`. What an
// appended key took part in is known from attended and log_sum_exp, which hold
// its share.
HeadGradients attention_gradients(const ForwardCall& call,
                                  const PooledRows& d_attended,
                                  TensorView<float, 4> d_bias,
                                  StateDict& gradients) {
  const MultiHeadAttentionConfig& c = call.config;
  const Intermediates& acts = call.acts;
  const std::vector<float> zeros(static_cast<std::size_t>(c.heads));
  AttentionOptions attention =
      detail::attention_options(c, call.parameters, zeros, call.options);
  attention.log_sum_exp = acts.log_sum_exp.rows();
  HeadGradients d(call.in, detail::Widths(c));
  std::span<float> d_scales;
  if (const auto at = gradients.find("cosine_scale"); at != gradients.end()) {
    d_scales = at->second.values<float>();
  }
  attention_backward({.q = acts.q.heads(c.heads),
                      .k = acts.k.heads(c.kv_heads),
                      .v = acts.v.heads(c.kv_heads),
                      .out = acts.attended.heads(c.heads),
                      .d_out = d_attended.heads(c.heads),
                      .d_log_sum_exp = {}},
                     {.q = d.q.heads(c.heads),
                      .k = d.k.heads(c.kv_heads),
                      .v = d.v.heads(c.kv_heads),
                      .bias = d_bias,
                      .alibi_slopes = {},
                      .sinks = {},
                      .head_scales = d_scales},
                     attention);
  if (c.bias_kv) {
    detail::append_key_backward(
        detail::appended_key(c, call.parameters, acts, attention),
        {.out = acts.attended.heads(c.heads),
         .d_out = d_attended.heads(c.heads),
         .weight = acts.appended_weight.rows(),
         .d_q = d.q.heads(c.heads),
         .d_key = per_kv_head(gradients, "bias_k", c.kv_heads),
         .d_value = per_kv_head(gradients, "bias_v", c.kv_heads),
         .d_head_scales = d_scales});
  }
  return d;
}

}  // namespace

StateDict MultiHeadAttention::backward(
    const MultiHeadAttentionContext& context, TensorView<const float, 3> d_out,
    const MultiHeadAttentionGradients& wanted, StateDict reuse) const {
  require(context.saved_ != nullptr, kBackward,
          "the context must be one that forward filled; it is empty");
  const MultiHeadAttentionContext::Saved& saved = *context.saved_;
  const detail::Inputs& in = saved.inputs;
  const Intermediates& acts = saved.acts;
  const MultiHeadAttentionConfig& c = config_;
  const Threads threads = saved.options.threads;
  check_is_of_layer(in, acts, c);
  require(d_out.shape() == in.query.shape(), kBackward,
          "d_out must have the query's shape; d_out is ",
          ShapeText{d_out.shape()}, ", query is ", ShapeText{in.query.shape()});
  check_shape(wanted.query, in.query, "query");
  check_shape(wanted.key, in.key, "key");
  check_shape(wanted.value, in.value, "value");
  const detail::Widths w(c);
  StateDict gradients = room_for(detail::parameter_specs(c), std::move(reuse));

  // 3. forward: out = attended W_o^T + b_o
  const PooledRows d_attended(in.batch(), in.q_len(), w.attended);
  input_gradient({d_out, parameters_.at("out_proj.weight").view<float, 2>(),
                  d_attended.rows()},
                 threads);
  weight_gradient({d_out, acts.attended.rows(),
                   gradients.at("out_proj.weight").view<float, 2>(),
                   values_or_null(gradients, "out_proj.bias")},
                  threads);

  // 2. forward: attended = attention(q, k, v)
  const HeadGradients d =
      attention_gradients({c, parameters_, in, acts, saved.options}, d_attended,
                          wanted.bias, gradients);

  // 1. forward: q = query W_q^T + b_q, and so on. Inputs that are one memory
  // get the sum, in the order query, key, value.
  const auto project = [&](const PooledRows& d_projected, const char* name,
                           std::int64_t begin, TensorView<const float, 3> input,
                           TensorView<float, 3> d_input, bool add) {
    const std::int64_t rows = d_projected.rows().extent(2);
    weight_gradient(
        {d_projected.rows(), input, rows_of(gradients, name, begin, rows),
         values_or_null(gradients, "in_proj_bias", begin)},
        threads);
    if (d_input.is_null()) return;
    input_gradient(
        {d_projected.rows(),
         detail::weight_rows(parameters_, name, begin, rows), d_input, add},
        threads);
  };
  const auto same = [](const TensorView<float, 3>& a,
                       const TensorView<float, 3>& b) {
    return !a.is_null() && a.data() == b.data();
  };
  project(d.q, "q_proj_weight", 0, in.query, wanted.query, false);
  project(d.k, "k_proj_weight", w.q, in.key, wanted.key,
          same(wanted.query, wanted.key));
  project(d.v, "v_proj_weight", w.q + w.k, in.value, wanted.value,
          same(wanted.query, wanted.value) || same(wanted.key, wanted.value));
  return gradients;
}

}  // namespace regard::nn
