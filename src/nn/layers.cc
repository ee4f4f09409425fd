// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/layers.h"

#include <cmath>

#include "regard/core/error.h"

namespace regard::nn {
namespace {

using autograd::HeadColumns;
using autograd::PackedAttentionOptions;
using Start = ParameterSpec::Start;

autograd::Activation of(Activation f) {
  switch (f) {
    case Activation::kGelu:
      return autograd::Activation::kGelu;
    case Activation::kGeluTanh:
      return autograd::Activation::kGeluTanh;
    case Activation::kSwiglu:
      return autograd::Activation::kSwiglu;
    default:
      return autograd::Activation::kRelu;
  }
}

NormLayer norm_of(const std::string& name, const LayerConfig& c) {
  return {name, c.norm, c.model_dim, c.norm_epsilon};
}

PackedAttentionOptions options_of(Pass& pass, const LayerConfig& c,
                                  const Sentences& queries,
                                  const Sentences& keys) {
  PackedAttentionOptions o;
  o.heads = c.heads;
  o.kv_heads = c.heads;
  o.head_dim = c.model_dim / c.heads;
  o.q_offsets = queries.offsets;
  o.kv_offsets = keys.offsets;
  o.dropout = pass.dropout(c.attention_dropout).rate;
  o.dropout_seed = pass.attention_seed();
  return o;
}

}  // namespace

void Linear::declare(ParameterSpecs& specs) const {
  specs[name + ".weight"] = {{out, in}, Start::kXavierUniform};
  if (bias) specs[name + ".bias"] = {{out}, Start::kZeros};
}

Variable Linear::operator()(Pass& pass, const Variable& x,
                            const autograd::LinearOptions& options) const {
  return autograd::linear(pass.tape(), x, pass.parameter(name + ".weight"),
                          bias ? pass.parameter(name + ".bias") : Variable(),
                          options);
}

void NormLayer::declare(ParameterSpecs& specs) const {
  specs[name + ".weight"] = {{width}, Start::kOnes};
  if (kind == Norm::kLayerNorm)
    specs[name + ".bias"] = {{width}, Start::kZeros};
}

autograd::NormOptions NormLayer::options(Pass& pass) const {
  const bool centred = kind == Norm::kLayerNorm;
  return {pass.parameter(name + ".weight"),
          centred ? pass.parameter(name + ".bias") : Variable(), epsilon,
          centred};
}

Variable NormLayer::operator()(Pass& pass, const Variable& x) const {
  return autograd::norm(pass.tape(), x, options(pass));
}

void Embedding::declare(ParameterSpecs& specs) const {
  specs[name + ".weight"] = {
      {vocab, width},
      Start::kNormal,
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)))};
}

Variable Embedding::operator()(
    Pass& pass, std::span<const std::int32_t> tokens,
    const autograd::EmbeddingOptions& options) const {
  return autograd::embedding(pass.tape(), pass.parameter(name + ".weight"),
                             tokens, options);
}

void FeedForward::declare(ParameterSpecs& specs) const {
  const std::int64_t inner = config.activation == Activation::kSwiglu
                                 ? 2 * config.feed_forward_dim
                                 : config.feed_forward_dim;
  Linear{name + ".linear1", config.model_dim, inner}.declare(specs);
  Linear{name + ".linear2", config.feed_forward_dim, config.model_dim}.declare(
      specs);
}

Variable FeedForward::operator()(Pass& pass, const Variable& x) const {
  const Variable inner = Linear{name + ".linear1"}(
      pass, x,
      {.activation = of(config.activation),
       .dropout = pass.dropout(config.activation_dropout)});
  return Linear{name + ".linear2"}(pass, inner);
}

void PackedAttention::declare(ParameterSpecs& specs) const {
  const std::int64_t d = config.model_dim;
  specs[name + ".in_proj_weight"] = {{3 * d, d}, Start::kXavierUniform};
  specs[name + ".in_proj_bias"] = {{3 * d}, Start::kZeros};
  Linear{name + ".out_proj", d, d}.declare(specs);
}

Variable PackedAttention::operator()(Pass& pass, const Variable& x,
                                     const Sentences& sentences,
                                     bool causal) const {
  const std::int64_t d = config.model_dim;
  const Variable qkv =
      autograd::linear(pass.tape(), x, pass.parameter(name + ".in_proj_weight"),
                       pass.parameter(name + ".in_proj_bias"));
  PackedAttentionOptions o = options_of(pass, config, sentences, sentences);
  o.causal = causal;
  o.rotary_cos = sentences.rotary_cos;
  o.rotary_sin = sentences.rotary_sin;
  const Variable attended =
      autograd::attention(pass.tape(), {qkv, 0}, {qkv, d}, {qkv, 2 * d}, o);
  return Linear{name + ".out_proj"}(pass, attended);
}

Variable PackedAttention::operator()(Pass& pass, const Variable& x,
                                     const Sentences& sentences,
                                     const Variable& memory,
                                     const Sentences& memory_sentences) const {
  const std::int64_t d = config.model_dim;
  const Variable weight = pass.parameter(name + ".in_proj_weight");
  const Variable bias = pass.parameter(name + ".in_proj_bias");
  const Variable q =
      autograd::linear(pass.tape(), x, weight, bias, {.count = d});
  const Variable kv = autograd::linear(pass.tape(), memory, weight, bias,
                                       {.first = d, .count = 2 * d});
  const Variable attended = autograd::attention(
      pass.tape(), {q, 0}, {kv, 0}, {kv, d},
      options_of(pass, config, sentences, memory_sentences));
  return Linear{name + ".out_proj"}(pass, attended);
}

void TransformerEncoderLayer::declare(ParameterSpecs& specs) const {
  PackedAttention{name + ".self_attn", config}.declare(specs);
  FeedForward{name, config}.declare(specs);
  norm_of(name + ".norm1", config).declare(specs);
  norm_of(name + ".norm2", config).declare(specs);
}

Variable TransformerEncoderLayer::operator()(Pass& pass, const Variable& x,
                                             const Sentences& sentences) const {
  const PackedAttention attention{name + ".self_attn", config};
  const FeedForward feed_forward{name, config};
  const NormLayer norm1 = norm_of(name + ".norm1", config);
  const NormLayer norm2 = norm_of(name + ".norm2", config);
  autograd::Tape& tape = pass.tape();
  if (config.norm_first) {
    const Variable attended =
        attention(pass, norm1(pass, x), sentences, causal);
    const auto [sum, normed] = autograd::add_norm(
        tape, x, attended, pass.dropout(config.dropout), norm2.options(pass));
    return autograd::add(tape, sum, feed_forward(pass, normed),
                         pass.dropout(config.dropout));
  }
  const Variable attended = attention(pass, x, sentences, causal);
  const Variable first =
      autograd::add_norm(tape, x, attended, pass.dropout(config.dropout),
                         norm1.options(pass))
          .normed;
  return autograd::add_norm(tape, first, feed_forward(pass, first),
                            pass.dropout(config.dropout), norm2.options(pass))
      .normed;
}

void TransformerDecoderLayer::declare(ParameterSpecs& specs) const {
  PackedAttention{name + ".self_attn", config}.declare(specs);
  PackedAttention{name + ".multihead_attn", config}.declare(specs);
  FeedForward{name, config}.declare(specs);
  for (const char* norm : {".norm1", ".norm2", ".norm3"}) {
    norm_of(name + norm, config).declare(specs);
  }
}

Variable TransformerDecoderLayer::operator()(
    Pass& pass, const Variable& x, const Sentences& sentences,
    const Variable& memory, const Sentences& memory_sentences) const {
  const PackedAttention self{name + ".self_attn", config};
  const PackedAttention cross{name + ".multihead_attn", config};
  const FeedForward feed_forward{name, config};
  const NormLayer norm1 = norm_of(name + ".norm1", config);
  const NormLayer norm2 = norm_of(name + ".norm2", config);
  const NormLayer norm3 = norm_of(name + ".norm3", config);
  autograd::Tape& tape = pass.tape();
  if (config.norm_first) {
    const Variable said = self(pass, norm1(pass, x), sentences, true);
    const autograd::SumAndNorm first = autograd::add_norm(
        tape, x, said, pass.dropout(config.dropout), norm2.options(pass));
    const Variable seen =
        cross(pass, first.normed, sentences, memory, memory_sentences);
    const autograd::SumAndNorm second =
        autograd::add_norm(tape, first.sum, seen, pass.dropout(config.dropout),
                           norm3.options(pass));
    return autograd::add(tape, second.sum, feed_forward(pass, second.normed),
                         pass.dropout(config.dropout));
  }
  const Variable said = self(pass, x, sentences, true);
  const Variable first =
      autograd::add_norm(tape, x, said, pass.dropout(config.dropout),
                         norm1.options(pass))
          .normed;
  const Variable seen = cross(pass, first, sentences, memory, memory_sentences);
  const Variable second =
      autograd::add_norm(tape, first, seen, pass.dropout(config.dropout),
                         norm2.options(pass))
          .normed;
  return autograd::add_norm(tape, second, feed_forward(pass, second),
                            pass.dropout(config.dropout), norm3.options(pass))
      .normed;
}

Tensor sinusoidal_positions(std::int64_t places, std::int64_t width) {
  Tensor table({places, width});
  const TensorView<float, 2> view = table.view<float, 2>();
  for (std::int64_t i = 0; i < width; i += 2) {
    const double frequency =
        std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(width));
    for (std::int64_t place = 0; place < places; ++place) {
      const double angle = static_cast<double>(place) * frequency;
      view(place, i) = static_cast<float>(std::sin(angle));
      if (i + 1 < width)
        view(place, i + 1) = static_cast<float>(std::cos(angle));
    }
  }
  return table;
}

}  // namespace regard::nn
