// SPDX-License-Identifier: Apache-2.0
#include "nn/decoder_weights.h"

#include "kernels/activations.h"
#include "kernels/norms.h"
#include "kernels/rows.h"
#include "nn/products.h"

namespace regard::nn {
namespace detail {
namespace {

// Rows that pass through a norm while they are in the cache.
constexpr std::int64_t kBlock = 64;

// Below so many rows another thread costs more than it brings.
Threads for_rows(Threads threads, std::int64_t rows) {
  if (rows < kBlock) threads.count = 1;
  return threads;
}

std::vector<float> copy_of(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

void activate(Activation f, float* inner, std::int64_t width, float* outer,
              std::int64_t begin, std::int64_t end) {
  if (f == Activation::kSwiglu) {
    for (std::int64_t r = begin; r < end; ++r) {
      kernels::swiglu(inner + r * width, inner + r * width + width / 2,
                      width / 2, outer + r * (width / 2));
    }
    return;
  }
  const kernels::Activation kind =
      f == Activation::kGelu       ? kernels::Activation::kGelu
      : f == Activation::kGeluTanh ? kernels::Activation::kGeluTanh
                                   : kernels::Activation::kRelu;
  kernels::activate(kind, inner + begin * width, (end - begin) * width,
                    outer + begin * width);
}

EncoderLayerWeights encoder_weights(const StateDict& p,
                                    const TransformerConfig& c,
                                    const std::string& name) {
  EncoderLayerWeights w;
  const std::string self = name + ".self_attn";
  w.qkv = {p, self + ".in_proj_weight", self + ".in_proj_bias"};
  w.out = {p, self + ".out_proj.weight", self + ".out_proj.bias"};
  w.feed_forward = {{p, name + ".linear1.weight", name + ".linear1.bias"},
                    {p, name + ".linear2.weight", name + ".linear2.bias"}};
  w.norm1 = {p, name + ".norm1", c};
  w.norm2 = {p, name + ".norm2", c};
  return w;
}

DecoderLayerWeights decoder_weights(const StateDict& p,
                                    const TransformerConfig& c,
                                    const std::string& name) {
  DecoderLayerWeights w;
  const std::int64_t d = c.model_dim;
  const std::string self = name + ".self_attn";
  const std::string cross = name + ".multihead_attn";
  w.qkv = {p, self + ".in_proj_weight", self + ".in_proj_bias"};
  w.self_out = {p, self + ".out_proj.weight", self + ".out_proj.bias"};
  w.q = {p, cross + ".in_proj_weight", cross + ".in_proj_bias", 0, d};
  w.kv = {p, cross + ".in_proj_weight", cross + ".in_proj_bias", d};
  w.cross_out = {p, cross + ".out_proj.weight", cross + ".out_proj.bias"};
  w.feed_forward = {{p, name + ".linear1.weight", name + ".linear1.bias"},
                    {p, name + ".linear2.weight", name + ".linear2.bias"}};
  w.norm1 = {p, name + ".norm1", c};
  w.norm2 = {p, name + ".norm2", c};
  w.norm3 = {p, name + ".norm3", c};
  return w;
}

}  // namespace

PackedLinear::PackedLinear(const StateDict& parameters,
                           const std::string& weight, const std::string& bias,
                           std::int64_t first, std::int64_t count) {
  const Tensor& tensor = parameters.at(weight);
  in_ = tensor.shape()[1];
  out_ = count < 0 ? tensor.shape()[0] - first : count;
  packed_ =
      packed_weight({tensor.values<float>().data() + first * in_, {out_, in_}});
  if (bias.empty()) return;
  const float* const values = parameters.at(bias).values<float>().data();
  bias_.assign(values + first, values + first + out_);
}

void PackedLinear::operator()(const float* x, std::int64_t rows, float* y,
                              Threads threads, RowsBody after) const {
  autograd::multiply({.x = {x, rows, in_, in_},
                      .packed = packed_.values<float>().data(),
                      .bias = bias_.empty() ? nullptr : bias_.data(),
                      .y = {y, rows, out_, out_}},
                     threads, autograd::no_rows, after);
}

NormWeights::NormWeights(const StateDict& parameters, const std::string& name,
                         const TransformerConfig& c)
    : weight(copy_of(parameters.at(name + ".weight"))),
      epsilon(c.norm_epsilon) {
  if (c.norm == Norm::kLayerNorm) bias = copy_of(parameters.at(name + ".bias"));
}

void NormWeights::operator()(const float* x, std::int64_t rows, float* y,
                             Threads threads) const {
  const auto width = static_cast<std::int64_t>(weight.size());
  autograd::over_row_blocks(
      for_rows(threads, rows), rows, kBlock,
      [&](std::int64_t begin, std::int64_t end) {
        const kernels::Norm job{.rows = end - begin,
                                .dim = width,
                                .x = x + begin * width,
                                .x_stride = width,
                                .gamma = weight.data(),
                                .beta = bias.empty() ? nullptr : bias.data(),
                                .eps = epsilon,
                                .y = y + begin * width,
                                .y_stride = width};
        bias.empty() ? kernels::rms_norm(job) : kernels::layer_norm(job);
      });
}

void feed_forward(const FeedForwardWeights& w, Activation f, const float* x,
                  std::int64_t rows, float* inner, float* y, Threads threads) {
  const std::int64_t width = w.linear1.out();
  float* const outer = f == Activation::kSwiglu ? inner + rows * width : inner;
  w.linear1(x, rows, inner, threads, [&](std::int64_t begin, std::int64_t end) {
    activate(f, inner, width, outer, begin, end);
  });
  w.linear2(outer, rows, y, threads);
}

const float* Residual::input(const NormWeights& norm, const float* x,
                             std::int64_t rows, float* normed,
                             Threads threads) const {
  if (!norm_first) return x;
  norm(x, rows, normed, threads);
  return normed;
}

void Residual::add(const NormWeights& norm, const float* branch,
                   std::int64_t rows, float* x, Threads threads) const {
  const auto width = static_cast<std::int64_t>(norm.weight.size());
  autograd::over_row_blocks(
      for_rows(threads, rows), rows, kBlock,
      [&](std::int64_t begin, std::int64_t end) {
        kernels::scale_add(branch + begin * width, 1.0f, x + begin * width,
                           (end - begin) * width, x + begin * width);
      });
  if (!norm_first) norm(x, rows, x, threads);
}

}  // namespace detail

TransformerDecoder::Weights::Weights(const Transformer& model)
    : config(model.config()) {
  const TransformerConfig& c = config;
  const StateDict& p = model.parameters();
  source_table = p.at(detail::source_embedding_name(c) + ".weight");
  target_table = p.at(detail::target_embedding_name(c) + ".weight");
  if (c.positions == Positions::kLearned) {
    source_places = p.at("source_positions.weight");
    target_places = p.at("target_positions.weight");
  }
  for (std::int64_t i = 0; i < c.encoder_layers; ++i) {
    encoder.push_back(
        detail::encoder_weights(p, c, "encoder.layers." + std::to_string(i)));
  }
  for (std::int64_t i = 0; i < c.decoder_layers; ++i) {
    decoder.push_back(
        detail::decoder_weights(p, c, "decoder.layers." + std::to_string(i)));
  }
  if (c.final_norm) {
    if (c.encoder_layers > 0) encoder_norm = {p, "encoder.norm", c};
    decoder_norm = {p, "decoder.norm", c};
  }
  output = {p, detail::output_name(c), ""};
}

}  // namespace regard::nn
