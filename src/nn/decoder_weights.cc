// SPDX-License-Identifier: Apache-2.0
#include "nn/decoder_weights.h"

#include <span>
#include <string>

namespace regard::nn {
namespace {

using detail::AttentionWeights;
using detail::FeedForwardWeights;
using detail::PackedLinear;
using detail::TransformerLayerWeights;

// Takes the parts of layers from a model's parameters by their names.
class Reader {
 public:
  Reader(const StateDict& parameters, const TransformerConfig& config,
         ops::WeightStorage storage)
      : parameters_(parameters), c_(config), storage_(storage) {}

  // Rows [first, first + count) of a weight, and of its bias if that has a
  // name; count < 0: all from `first` on.
  PackedLinear linear(const std::string& weight, const std::string& bias,
                      std::int64_t first = 0, std::int64_t count = -1) const {
    const TensorView<const float, 2> all =
        parameters_.at(weight).view<float, 2>();
    if (count < 0) count = all.extent(0) - first;
    std::span<const float> values;
    if (!bias.empty() && parameters_.contains(bias)) {
      values = parameters_.at(bias).values<float>().subspan(
          static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    }
    return PackedLinear(ops::ConstRows(all.at(first), {count, all.extent(1)}),
                        values, storage_);
  }

  ops::NormWeights norm(const std::string& name) const {
    ops::NormWeights norm{.kind = c_.norm, .epsilon = c_.norm_epsilon};
    const auto copy = [&](const char* part) {
      const auto values = parameters_.at(name + part).values<float>();
      return std::vector<float>(values.begin(), values.end());
    };
    norm.weight = copy(".weight");
    if (c_.norm == Norm::kLayerNorm) norm.bias = copy(".bias");
    return norm;
  }

  // Rows [0, count) of the input projection; count < 0: all.
  AttentionWeights attention(const std::string& name, const std::string& norm_,
                             std::int64_t count = -1) const {
    AttentionWeights w;
    w.norms.norm = norm(norm_);
    w.in = linear(name + ".in_proj_weight", name + ".in_proj_bias", 0, count);
    w.out = linear(name + ".out_proj.weight", name + ".out_proj.bias");
    return w;
  }

  FeedForwardWeights feed_forward(const std::string& name,
                                  const std::string& norm_) const {
    FeedForwardWeights w;
    w.norms.norm = norm(norm_);
    w.activation = c_.activation;
    const std::string weight = name + ".linear1.weight";
    const std::string bias = name + ".linear1.bias";
    const bool gated = is_gated(c_.activation);
    if (gated) w.gate = linear(weight, bias, 0, c_.feed_forward_dim);
    w.up = linear(weight, bias, gated ? c_.feed_forward_dim : 0);
    w.down = linear(name + ".linear2.weight", name + ".linear2.bias");
    return w;
  }

  TransformerLayerWeights layer(const std::string& name, bool cross) const {
    TransformerLayerWeights w;
    w.heads = w.kv_heads = c_.heads;
    w.head_dim = c_.dim_of_head();
    w.norm_first = c_.norm_first;
    w.self = attention(name + ".self_attn", name + ".norm1");
    if (cross) {
      w.cross = attention(name + ".multihead_attn", name + ".norm2", inner());
    }
    w.feed_forward = feed_forward(name, name + (cross ? ".norm3" : ".norm2"));
    return w;
  }

  // The width of all heads side by side.
  std::int64_t inner() const { return c_.heads * c_.dim_of_head(); }

 private:
  const StateDict& parameters_;
  const TransformerConfig& c_;
  const ops::WeightStorage storage_;
};

std::size_t bytes_of(const Tensor& tensor) { return tensor.byte_count(); }
std::size_t bytes_of(std::span<const float> values) {
  return values.size_bytes();
}
std::size_t bytes_of(const ops::NormWeights& norm) {
  return bytes_of(norm.weight) + bytes_of(norm.bias);
}
std::size_t bytes_of(const PackedLinear& linear) {
  return linear.is_null() ? 0 : linear.weight.bytes() + bytes_of(linear.bias);
}
std::size_t bytes_of(const AttentionWeights& w) {
  return bytes_of(w.norms.norm) + bytes_of(w.in) + bytes_of(w.out);
}
std::size_t bytes_of(const FeedForwardWeights& w) {
  return bytes_of(w.norms.norm) + bytes_of(w.gate) + bytes_of(w.up) +
         bytes_of(w.down);
}
std::size_t bytes_of(const TransformerLayerWeights& w) {
  return bytes_of(w.self) + bytes_of(w.cross) + bytes_of(w.feed_forward);
}

}  // namespace

std::size_t TransformerDecoder::Weights::bytes() const {
  std::size_t sum = 0;
  for (const Tensor* tensor :
       {&own_source_table, &target_table, &source_positions, &target_positions,
        &encoder_bias, &decoder_bias}) {
    sum += bytes_of(*tensor);
  }
  for (const ops::NormWeights* norm :
       {&encoder_norm, &decoder_norm, &source_norm, &target_norm}) {
    sum += bytes_of(*norm);
  }
  for (const PackedLinear* linear :
       {&output, &copy.query, &copy.key, &copy.gate}) {
    sum += bytes_of(*linear);
  }
  for (const auto& layer : encoder) sum += bytes_of(layer);
  for (const auto& layer : decoder) sum += bytes_of(layer);
  for (const PackedLinear& linear : memory_kv) sum += bytes_of(linear);
  return sum;
}

TransformerDecoder::Weights::Weights(const TransformerConfig& config_,
                                     const StateDict& p,
                                     ops::WeightStorage storage)
    : config(config_) {
  const TransformerConfig& c = config;
  const Reader read(p, c, storage);
  if (!c.shared_embeddings && c.source_vocab > 0) {
    own_source_table = p.at(detail::source_embedding_name(c) + ".weight");
  }
  target_table = p.at(detail::target_embedding_name(c) + ".weight");
  if (c.positions == Positions::kLearned) {
    if (c.source_vocab > 0) {
      source_positions = p.at("source_positions.weight");
    }
    target_positions = p.at("target_positions.weight");
  }
  for (std::int64_t i = 0; i < c.encoder_layers; ++i) {
    encoder.push_back(read.layer("encoder.layers." + std::to_string(i), false));
  }
  for (std::int64_t i = 0; i < c.decoder_layers; ++i) {
    const std::string name = "decoder.layers." + std::to_string(i);
    decoder.push_back(read.layer(name, true));
    const std::string cross = name + ".multihead_attn";
    memory_kv.push_back(read.linear(cross + ".in_proj_weight",
                                    cross + ".in_proj_bias", read.inner()));
  }
  if (c.final_norm) {
    if (c.encoder_layers > 0) encoder_norm = read.norm("encoder.norm");
    decoder_norm = read.norm("decoder.norm");
  }
  if (c.embedding_norm) {
    source_norm = read.norm("encoder.embedding_norm");
    target_norm = read.norm("decoder.embedding_norm");
  }
  if (c.relative_buckets > 0) {
    encoder_bias = p.at("encoder.relative_bias");
    decoder_bias = p.at("decoder.relative_bias");
  }
  output =
      read.linear(detail::output_name(c), c.output_bias ? "output.bias" : "");
  if (c.copy) {
    copy.query = read.linear("copy.query.weight", "");
    copy.key = read.linear("copy.key.weight", "");
    // One column: nothing to gain from other weights than float32.
    copy.gate = PackedLinear(p.at("copy.gate.weight").view<float, 2>(),
                             p.at("copy.gate.bias").values<float>());
  }
}

}  // namespace regard::nn
