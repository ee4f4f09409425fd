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

void check(const LanguageModelConfig& c) {
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
  require(c.rotary.rotary_dim <= c.head_dim, kWhere,
          "rotary_dim must be at most head_dim; they are ", c.rotary.rotary_dim,
          " and ", c.head_dim);
  require(std::isfinite(c.norm_epsilon) && c.norm_epsilon >= 0, kWhere,
          "norm_epsilon must be finite and not negative; it is ",
          c.norm_epsilon);
  nn::rotary_table(c.rotary, 0);  // says what is wrong with it
}

// Takes parameters by name, and at the end knows which were not taken.
class Taker {
 public:
  explicit Taker(const ParameterViews& parameters) : parameters_(parameters) {}

  bool has(const std::string& name) const { return parameters_.contains(name); }

  TensorView<const float, 2> view(const std::string& name, std::int64_t rows,
                                  std::int64_t columns) {
    const auto found = parameters_.find(name);
    require(found != parameters_.end(), kWhere, "the parameter ", name,
            " is missing");
    const std::array shape{rows, columns};
    require(found->second.shape() == shape, kWhere, name, " must be ",
            to_string(shape), "; it is ", to_string(found->second.shape()));
    taken_.insert(name);
    return found->second;
  }
  std::vector<float> vector(const std::string& name, std::int64_t size) {
    const auto from = view(name, 1, size);
    return {from.data(), from.data() + size};
  }
  Tensor copied(const std::string& name, std::int64_t rows,
                std::int64_t columns) {
    const auto from = view(name, rows, columns);
    Tensor tensor({rows, columns});
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy_n(from.at(r), columns,
                  tensor.values<float>().data() + r * columns);
    }
    return tensor;
  }

  void check_all_taken() const {
    for (const auto& [name, view] : parameters_) {
      require(taken_.contains(name), kWhere, io::in_quotes(name),
              " is not a parameter of this model");
    }
  }

 private:
  const ParameterViews& parameters_;
  std::set<std::string> taken_;
};

}  // namespace

LanguageModel::LanguageModel(const LanguageModelConfig& config,
                             const ParameterViews& parameters) {
  check(config);
  const LanguageModelConfig& c = config;
  // Every layer has parameters, so that these bound the layers to be made.
  require(c.layers <= static_cast<std::int64_t>(parameters.size()), kWhere,
          "there are fewer parameters (", parameters.size(), ") than layers (",
          c.layers, ")");
  auto w = std::make_unique<Weights>();
  w->config = c;
  Taker take(parameters);
  const std::int64_t q_dim = c.heads * c.head_dim;
  const std::int64_t kv_dim = c.kv_heads * c.head_dim;
  w->embedding = take.copied("token_embd.weight", c.vocab, c.model_dim);
  const auto norm = [&](const std::string& name) {
    return ops::NormWeights{.kind = ops::Norm::kRmsNorm,
                            .epsilon = c.norm_epsilon,
                            .weight = take.vector(name, c.model_dim)};
  };
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string prefix = "blk." + std::to_string(i) + ".";
    const auto matrix = [&](const char* name, std::int64_t out,
                            std::int64_t in) {
      return take.view(prefix + name + ".weight", out, in);
    };
    nn::detail::TransformerLayerWeights layer{.heads = c.heads,
                                              .kv_heads = c.kv_heads,
                                              .head_dim = c.head_dim,
                                              .norm_first = true};
    layer.self.norms.norm = norm(prefix + "attn_norm.weight");
    const std::array qkv{matrix("attn_q", q_dim, c.model_dim),
                         matrix("attn_k", kv_dim, c.model_dim),
                         matrix("attn_v", kv_dim, c.model_dim)};
    layer.self.in = PackedLinear(qkv);
    layer.self.out = PackedLinear(matrix("attn_output", c.model_dim, q_dim));
    layer.feed_forward.norms.norm = norm(prefix + "ffn_norm.weight");
    layer.feed_forward.activation = ops::Activation::kSwiglu;
    layer.feed_forward.gate =
        PackedLinear(matrix("ffn_gate", c.feed_forward_dim, c.model_dim));
    layer.feed_forward.up =
        PackedLinear(matrix("ffn_up", c.feed_forward_dim, c.model_dim));
    layer.feed_forward.down =
        PackedLinear(matrix("ffn_down", c.model_dim, c.feed_forward_dim));
    w->layers.push_back(std::move(layer));
  }
  w->output_norm = norm("output_norm.weight");
  const bool tied = !take.has("output.weight");
  w->output = PackedLinear(take.view(
      tied ? "token_embd.weight" : "output.weight", c.vocab, c.model_dim));
  take.check_all_taken();
  weights_ = std::move(w);
}

LanguageModel::~LanguageModel() = default;
LanguageModel::LanguageModel(LanguageModel&&) noexcept = default;
LanguageModel& LanguageModel::operator=(LanguageModel&&) noexcept = default;

const LanguageModelConfig& LanguageModel::config() const {
  return weights_->config;
}

}  // namespace regard::tasks
