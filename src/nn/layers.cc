// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/layers.h"

#include <cmath>
#include <initializer_list>

#include "regard/core/error.h"

namespace regard::nn {
namespace {

using autograd::HeadColumns;
using autograd::PackedAttentionOptions;
using Start = ParameterSpec::Start;
using Use = ParameterSpec::Use;

NormLayer norm_of(const std::string& name, const LayerConfig& c) {
  return {name, c.norm, c.model_dim, c.norm_epsilon};
}

PackedAttentionOptions options_of(Pass& pass, const LayerConfig& c,
                                  const Sentences& queries,
                                  const Sentences& keys, const Mask& mask) {
  PackedAttentionOptions o;
  o.heads = c.heads;
  o.kv_heads = c.heads;
  o.head_dim = c.model_dim / c.heads;
  o.q_offsets = queries.offsets;
  o.kv_offsets = keys.offsets;
  o.mask = mask;
  o.dropout = pass.dropout(c.attention_dropout).rate;
  o.dropout_seed = pass.attention_seed();
  return o;
}

using Block = FunctionRef<Variable(const Variable&)>;

// x + dropout(block(x)) for each block, with name.norm1, name.norm2... before
// the blocks or after the sums.
Variable run_blocks(Pass& pass, const std::string& name, const LayerConfig& c,
                    Variable x, std::initializer_list<Block> blocks) {
  const auto norm = [&](std::size_t number) {
    return norm_of(name + ".norm" + std::to_string(number), c);
  };
  Variable in = c.norm_first ? norm(1)(pass, x) : x;
  std::size_t number = 0;
  for (const Block& block : blocks) {
    const bool last = ++number == blocks.size();
    // The numbers of the sites are part of a training's bits: the last block
    // gets its own before those inside it.
    autograd::ElementDropout dropout;
    if (last) dropout = pass.dropout(c.dropout);
    const Variable branch = block(in);
    if (!last) dropout = pass.dropout(c.dropout);
    if (last && c.norm_first) {
      return autograd::add(pass.tape(), x, branch, dropout);
    }
    const autograd::SumAndNorm added = autograd::add_norm(
        pass.tape(), x, branch, dropout,
        norm(c.norm_first ? number + 1 : number).parameters(pass));
    x = c.norm_first ? added.sum : added.normed;
    in = added.normed;
  }
  return x;
}

}  // namespace

void Linear::declare(ParameterSpecs& specs) const {
  specs[name + ".weight"] = {
      {out, in}, Start::kXavierUniform, 0.0f, Use::kProduct};
  if (bias) specs[name + ".bias"] = {{out}};
}

Variable Linear::operator()(Pass& pass, const Variable& x,
                            const autograd::LinearOptions& options) const {
  return pass.linear(x, name + ".weight", bias ? name + ".bias" : "", options);
}

void NormLayer::declare(ParameterSpecs& specs) const {
  specs[name + ".weight"] = {{width}, Start::kConstant, 1.0f};
  if (kind == Norm::kLayerNorm) specs[name + ".bias"] = {{width}};
}

autograd::NormParameters NormLayer::parameters(Pass& pass) const {
  return {
      pass.parameter(name + ".weight"),
      kind == Norm::kLayerNorm ? pass.parameter(name + ".bias") : Variable(),
      epsilon, kind};
}

Variable NormLayer::operator()(Pass& pass, const Variable& x) const {
  return autograd::norm(pass.tape(), x, parameters(pass));
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
  const std::int64_t inner = is_gated(config.activation)
                                 ? 2 * config.feed_forward_dim
                                 : config.feed_forward_dim;
  Linear{name + ".linear1", config.model_dim, inner}.declare(specs);
  Linear{name + ".linear2", config.feed_forward_dim, config.model_dim}.declare(
      specs);
}

Variable FeedForward::operator()(Pass& pass, const Variable& x) const {
  const Variable inner = Linear{name + ".linear1"}(
      pass, x,
      {.activation = config.activation,
       .dropout = pass.dropout(config.activation_dropout)});
  return Linear{name + ".linear2"}(pass, inner);
}

void PackedAttention::declare(ParameterSpecs& specs) const {
  const std::int64_t d = config.model_dim;
  specs[name + ".in_proj_weight"] = {
      {3 * d, d}, Start::kXavierUniform, 0.0f, Use::kProduct};
  specs[name + ".in_proj_bias"] = {{3 * d}};
  Linear{name + ".out_proj", d, d}.declare(specs);
}

void PackedAttention::declare_cross(ParameterSpecs& specs) const {
  declare(specs);
  specs[name + ".in_proj_weight"].use = Use::kQueryKeys;
}

Variable PackedAttention::operator()(Pass& pass, const Variable& x,
                                     const Sentences& sentences,
                                     const Mask& mask) const {
  const std::int64_t d = config.model_dim;
  const Variable qkv =
      pass.linear(x, name + ".in_proj_weight", name + ".in_proj_bias");
  PackedAttentionOptions o =
      options_of(pass, config, sentences, sentences, mask);
  o.rotary_cos = sentences.rotary_cos;
  o.rotary_sin = sentences.rotary_sin;
  const Variable attended =
      autograd::attention(pass.tape(), {qkv, 0}, {qkv, d}, {qkv, 2 * d}, o);
  return Linear{name + ".out_proj"}(pass, attended);
}

Variable PackedAttention::operator()(Pass& pass, const Variable& x,
                                     const Sentences& sentences,
                                     const Variable& memory,
                                     const Sentences& memory_sentences,
                                     const Mask& mask) const {
  const std::int64_t d = config.model_dim;
  const std::string weight = name + ".in_proj_weight";
  const std::string bias = name + ".in_proj_bias";
  const Variable q = pass.linear(x, weight, bias, {.count = d});
  const Variable kv =
      pass.linear(memory, weight, bias, {.first = d, .count = 2 * d});
  const Variable attended = autograd::attention(
      pass.tape(), {q, 0}, {kv, 0}, {kv, d},
      options_of(pass, config,
                 memory_sentences.queries.empty()
                     ? sentences
                     : Sentences{.offsets = memory_sentences.queries},
                 memory_sentences, mask));
  return Linear{name + ".out_proj"}(pass, attended);
}

void TransformerEncoderLayer::declare(ParameterSpecs& specs) const {
  PackedAttention{name + ".self_attn", config}.declare(specs);
  FeedForward{name, config}.declare(specs);
  norm_of(name + ".norm1", config).declare(specs);
  norm_of(name + ".norm2", config).declare(specs);
}

Variable TransformerEncoderLayer::operator()(Pass& pass, const Variable& x,
                                             const Sentences& sentences,
                                             const Mask& mask) const {
  return run_blocks(pass, name, config, x,
                    {[&](const Variable& in) {
                       return PackedAttention{name + ".self_attn", config}(
                           pass, in, sentences, mask);
                     },
                     [&](const Variable& in) {
                       return FeedForward{name, config}(pass, in);
                     }});
}

void TransformerDecoderLayer::declare(ParameterSpecs& specs) const {
  PackedAttention{name + ".self_attn", config}.declare(specs);
  PackedAttention{name + ".multihead_attn", config}.declare_cross(specs);
  FeedForward{name, config}.declare(specs);
  for (const char* norm : {".norm1", ".norm2", ".norm3"}) {
    norm_of(name + norm, config).declare(specs);
  }
}

Variable TransformerDecoderLayer::operator()(Pass& pass, const Variable& x,
                                             const Sentences& sentences,
                                             const Variable& memory,
                                             const Sentences& memory_sentences,
                                             const DecoderMasks& masks) const {
  return run_blocks(pass, name, config, x,
                    {[&](const Variable& in) {
                       return PackedAttention{name + ".self_attn", config}(
                           pass, in, sentences, masks.self);
                     },
                     [&](const Variable& in) {
                       return PackedAttention{name + ".multihead_attn", config}(
                           pass, in, sentences, memory, memory_sentences,
                           masks.cross);
                     },
                     [&](const Variable& in) {
                       return FeedForward{name, config}(pass, in);
                     }});
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
