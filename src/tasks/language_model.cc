// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/language_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "io/quote.h"
#include "regard/core/error.h"
#include "tasks/language_weights.h"

namespace regard::tasks {
namespace {

using nn::detail::PackedLinear;

constexpr const char* kWhere = "LanguageModel";

void check_sizes(const LanguageModelConfig& c) {
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"vocab", c.vocab},       {"model_dim", c.model_dim},
      {"layers", c.layers},     {"heads", c.heads},
      {"kv_heads", c.kv_heads}, {"head_dim", c.head_dim},
      {"context", c.context},   {"feed_forward_dim", c.feed_forward_dim}};
  for (const auto& [name, size] : sizes) {
    require(size > 0, kWhere, "every size must be positive; ", name, " is ",
            size);
  }
  require(c.heads % c.kv_heads == 0, kWhere, "kv_heads must divide heads; ",
          c.kv_heads, " and ", c.heads, " came");
  // Sums of a few widths are then numbers, too.
  constexpr std::int64_t kWidest = std::int64_t{1} << 40;
  require(c.head_dim <= kWidest / c.heads && c.feed_forward_dim <= kWidest,
          kWhere, "a layer must be at most ", kWidest, " wide; there are ",
          c.heads, " heads of ", c.head_dim, ", feed_forward_dim is ",
          c.feed_forward_dim);
  require(c.window >= 0, kWhere, "window must not be negative; it is ",
          c.window);
  require(c.windowed.empty() || std::ssize(c.windowed) == c.layers, kWhere,
          "windowed must name every layer; it has ", c.windowed.size(),
          " elements for ", c.layers, " layers");
}

void check_rotary(const LanguageModelConfig& c, const nn::RotaryConfig& r) {
  require(r.rotary_dim <= c.head_dim, kWhere,
          "rotary_dim must be at most head_dim; they are ", r.rotary_dim,
          " and ", c.head_dim);
  nn::rotary_table(r, 0);  // says what is wrong with it
}

void check(const LanguageModelConfig& c) {
  check_sizes(c);
  const std::pair<const char*, float> reals[] = {
      {"norm_epsilon", c.norm_epsilon},
      {"attention_scale", c.attention_scale},
      {"attention_softcap", c.attention_softcap},
      {"output_softcap", c.output_softcap},
      {"embedding_scale", c.embedding_scale}};
  for (const auto& [name, value] : reals) {
    require(std::isfinite(value) && value >= 0, kWhere, name,
            " must be finite and not negative; it is ", value);
  }
  check_rotary(c, c.rotary);
  if (c.window_rotary) check_rotary(c, *c.window_rotary);
}

// Takes parameters by name, and at the end knows which were not taken.
class Taker {
 public:
  explicit Taker(const ParameterSource& source) : source_(source) {}

  // [rows, columns]. The shape is checked before anything is read.
  const Parameter& parameter(const std::string& name, std::int64_t rows,
                             std::int64_t columns) {
    const std::string ours = source_.name_of(name);
    const auto found = source_.parameters.find(ours);
    require(found != source_.parameters.end(), kWhere, "the parameter ", ours,
            " is missing");
    const Parameter& parameter = found->second;
    const Shape shape{rows, columns};
    const bool is_vector = rows == 1 && parameter.shape == Shape{columns};
    require(is_vector || parameter.shape == shape, kWhere, ours, " must be ",
            to_string(rows == 1 ? Shape{columns} : shape), "; it is ",
            to_string(parameter.shape));
    taken_.insert(ours);
    return parameter;
  }
  Tensor matrix(const std::string& name, std::int64_t rows,
                std::int64_t columns) {
    return parameter(name, rows, columns).load();
  }
  std::vector<float> vector(const std::string& name, std::int64_t size) {
    const Tensor from = matrix(name, 1, size);
    const auto values = from.values<float>();
    return {values.begin(), values.end()};
  }

  void check_all_taken() const {
    for (const auto& [name, parameter] : source_.parameters) {
      require(taken_.contains(name), kWhere, io::in_quotes(name),
              " is not a parameter of this model");
    }
  }

 private:
  const ParameterSource& source_;
  std::set<std::string> taken_;
};

// The parts of one layer.
class LayerMaker {
 public:
  LayerMaker(const LanguageModelConfig& config, Taker& take, std::int64_t layer,
             ops::WeightStorage storage)
      : c_(config),
        take_(take),
        storage_(storage),
        prefix_("blk." + std::to_string(layer) + ".") {}

  nn::detail::TransformerLayerWeights make() {
    nn::detail::TransformerLayerWeights layer{.heads = c_.heads,
                                              .kv_heads = c_.kv_heads,
                                              .head_dim = c_.head_dim,
                                              .norm_first = true};
    attention(layer.self);
    feed_forward(layer.feed_forward);
    return layer;
  }

 private:
  ops::NormWeights norm(const char* name, std::int64_t size) {
    ops::NormWeights norm{.kind = c_.norm, .epsilon = c_.norm_epsilon};
    norm.weight = take_.vector(prefix_ + name + ".weight", size);
    if (c_.norm == ops::Norm::kLayerNorm) {
      norm.bias = take_.vector(prefix_ + name + ".bias", size);
    }
    return norm;
  }
  ParameterRows rows(const char* name, std::int64_t out, std::int64_t in) {
    return {&take_.parameter(prefix_ + name + ".weight", out, in), 0, out};
  }
  std::vector<float> bias(bool is_there, const char* name, std::int64_t out) {
    if (!is_there) return {};
    return take_.vector(prefix_ + name + ".bias", out);
  }
  PackedLinear linear(const char* name, std::int64_t out, std::int64_t in,
                      bool has_bias) {
    PackedLinear linear =
        pack_parameters(std::array{rows(name, out, in)}, storage_);
    linear.bias = bias(has_bias, name, out);
    return linear;
  }

  void attention(nn::detail::AttentionWeights& w) {
    const std::int64_t q_dim = c_.heads * c_.head_dim;
    const std::int64_t kv_dim = c_.kv_heads * c_.head_dim;
    w.norms.norm = norm("attn_norm", c_.model_dim);
    if (c_.fused_qkv) {
      w.in = linear("attn_qkv", q_dim + 2 * kv_dim, c_.model_dim, c_.qkv_bias);
    } else {
      w.in = pack_parameters(std::array{rows("attn_q", q_dim, c_.model_dim),
                                        rows("attn_k", kv_dim, c_.model_dim),
                                        rows("attn_v", kv_dim, c_.model_dim)},
                             storage_);
      for (const auto& [name, size] : {std::pair{"attn_q", q_dim},
                                       {"attn_k", kv_dim},
                                       {"attn_v", kv_dim}}) {
        const auto part = bias(c_.qkv_bias, name, size);
        w.in.bias.insert(w.in.bias.end(), part.begin(), part.end());
      }
    }
    if (c_.qk_norm) {
      w.q_norm = norm("attn_q_norm", c_.head_dim);
      w.k_norm = norm("attn_k_norm", c_.head_dim);
    }
    w.out =
        linear("attn_output", c_.model_dim, q_dim, c_.attention_output_bias);
    if (c_.result_norms) {
      w.norms.result_norm = norm("post_attention_norm", c_.model_dim);
    }
  }

  void feed_forward(nn::detail::FeedForwardWeights& w) {
    const std::int64_t inner = c_.feed_forward_dim;
    const bool has_bias = c_.feed_forward_bias;
    w.norms.norm = norm("ffn_norm", c_.model_dim);
    w.activation = c_.activation;
    if (c_.fused_gate_up) {
      const ParameterRows both = rows("ffn_up", 2 * inner, c_.model_dim);
      const auto half = [&](std::int64_t begin) {
        return pack_parameters(
            std::array{ParameterRows{both.parameter, begin, inner}}, storage_);
      };
      w.gate = half(0);
      w.up = half(inner);
    } else {
      if (is_gated(c_.activation)) {
        w.gate = linear("ffn_gate", inner, c_.model_dim, has_bias);
      }
      w.up = linear("ffn_up", inner, c_.model_dim, has_bias);
    }
    w.down = linear("ffn_down", c_.model_dim, inner, has_bias);
    if (c_.result_norms) {
      w.norms.result_norm = norm("post_ffw_norm", c_.model_dim);
    }
  }

  const LanguageModelConfig& c_;
  Taker& take_;
  ops::WeightStorage storage_;
  std::string prefix_;
};

ParameterSource source_of(const ParameterViews& views) {
  ParameterSource source;
  for (const auto& [name, view] : views) {
    const auto& from = view;
    source.parameters[name] = {
        Shape(from.shape().begin(), from.shape().end()), [from] {
          Tensor copy({from.extent(0), from.extent(1)});
          float* to = copy.values<float>().data();
          for (std::int64_t r = 0; r < from.extent(0); ++r) {
            to = std::copy_n(from.at(r), from.extent(1), to);
          }
          return copy;
        }};
  }
  return source;
}

}  // namespace

LanguageModel make_language_model(const LanguageModelConfig& c,
                                  const ParameterSource& source,
                                  ops::WeightStorage storage) {
  check(c);
  // Every layer has parameters, so that these bound the layers to be made.
  require(c.layers <= std::ssize(source.parameters), kWhere,
          "there are fewer parameters (", source.parameters.size(),
          ") than layers (", c.layers, ")");
  auto w = std::make_unique<LanguageModel::Weights>();
  w->config = c;
  Taker take(source);
  w->embedding = take.matrix("token_embd.weight", c.vocab, c.model_dim);
  if (c.learned_positions) {
    w->positions = take.matrix("position_embd.weight", c.context, c.model_dim);
  }
  for (std::int64_t i = 0; i < c.layers; ++i) {
    w->layers.push_back(LayerMaker(c, take, i, storage).make());
  }
  w->output_norm = {.kind = c.norm,
                    .epsilon = c.norm_epsilon,
                    .weight = take.vector("output_norm.weight", c.model_dim)};
  if (c.norm == ops::Norm::kLayerNorm) {
    w->output_norm.bias = take.vector("output_norm.bias", c.model_dim);
  }
  w->output = pack_parameters(
      std::array{ParameterRows{
          &take.parameter(c.tied_output ? "token_embd.weight" : "output.weight",
                          c.vocab, c.model_dim),
          0, c.vocab}},
      storage);
  take.check_all_taken();
  return LanguageModel(std::move(w));
}

LanguageModel::LanguageModel(std::unique_ptr<const Weights> weights)
    : weights_(std::move(weights)) {}
LanguageModel::LanguageModel(const LanguageModelConfig& config,
                             const ParameterViews& parameters,
                             ops::WeightStorage storage)
    : LanguageModel(
          make_language_model(config, source_of(parameters), storage)) {}

LanguageModel::~LanguageModel() = default;
LanguageModel::LanguageModel(LanguageModel&&) noexcept = default;
LanguageModel& LanguageModel::operator=(LanguageModel&&) noexcept = default;

const LanguageModelConfig& LanguageModel::config() const {
  return weights_->config;
}

}  // namespace regard::tasks
