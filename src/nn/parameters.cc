// SPDX-License-Identifier: Apache-2.0
#include "nn/parameters.h"

#include <algorithm>
#include <cmath>

#include "regard/core/error.h"
#include "regard/core/random.h"

namespace regard::nn::detail {
namespace {

constexpr const char* kWhere = "MultiHeadAttention";
// No width comes near this, and products of two of them stay within 63 bits.
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 30;

void require_width(std::int64_t width, const char* name) {
  require(width > 0 && width <= kMaxWidth, kWhere, name,
          " must be from 1 to 2^30; it is ", width);
}

bool is_appended(const std::string& name) {
  return name == "bias_k" || name == "bias_v";
}

void draw(const ParameterSpec& spec, Tensor& tensor, Random& random) {
  const auto values = tensor.values<float>();
  const auto uniform = [&](double bound) {
    const auto b = static_cast<float>(bound);
    for (float& value : values) value = random.uniform(-b, b);
  };
  if (spec.name == "out_proj.weight") {
    // nn.Linear's rule, kaiming_uniform(a = sqrt(5)): 1 / sqrt(fan_in).
    uniform(1.0 / std::sqrt(static_cast<double>(spec.shape[1])));
  } else if (is_appended(spec.name)) {
    // Xavier-normal. PyTorch counts a [1, 1, width] as fan_in = fan_out =
    // width.
    const double deviation =
        1.0 / std::sqrt(static_cast<double>(spec.shape[2]));
    for (float& value : values) {
      value = static_cast<float>(deviation * random.normal());
    }
  } else if (spec.name == "cosine_scale") {
    std::fill(values.begin(), values.end(), 10.0f);
  } else if (spec.shape.size() == 2) {
    // Xavier-uniform: sqrt(6 / (fan_in + fan_out)).
    uniform(
        std::sqrt(6.0 / static_cast<double>(spec.shape[0] + spec.shape[1])));
  }  // The other biases stay 0.
}

std::string names_of(const std::vector<ParameterSpec>& specs) {
  std::string names;
  for (const ParameterSpec& spec : specs) {
    names += (names.empty() ? "" : ", ") + spec.name;
  }
  return names;
}

}  // namespace

MultiHeadAttentionConfig resolved(MultiHeadAttentionConfig c) {
  require_width(c.model_dim, "model_dim");
  require_width(c.heads, "heads");
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  require(c.kv_heads > 0 && c.heads % c.kv_heads == 0, kWhere,
          "kv_heads must divide heads; heads is ", c.heads, ", kv_heads is ",
          c.kv_heads);
  if (c.key_dim == 0) c.key_dim = c.model_dim;
  if (c.value_dim == 0) c.value_dim = c.model_dim;
  if (c.head_dim == 0) {
    require(c.model_dim % c.heads == 0, kWhere,
            "heads must divide model_dim if head_dim is not given; model_dim "
            "is ",
            c.model_dim, ", heads is ", c.heads);
    c.head_dim = c.model_dim / c.heads;
  }
  if (c.value_head_dim == 0) c.value_head_dim = c.head_dim;
  require_width(c.key_dim, "key_dim");
  require_width(c.value_dim, "value_dim");
  require_width(c.head_dim, "head_dim");
  require_width(c.value_head_dim, "value_head_dim");
  const std::int64_t widest = std::max(c.head_dim, c.value_head_dim);
  require(widest <= kMaxWidth / c.heads, kWhere,
          "heads times head_dim must be from 1 to 2^30; heads is ", c.heads,
          ", the wider head_dim is ", widest);
  require(c.dropout >= 0 && c.dropout < 1, kWhere,
          "dropout must be in [0, 1); it is ", c.dropout);
  require(!c.scale || std::isfinite(*c.scale), kWhere,
          "scale must be finite; it is ", c.scale.value_or(0.0f));
  return c;
}

std::vector<ParameterSpec> parameter_specs(const MultiHeadAttentionConfig& c) {
  const Widths w(c);
  std::vector<ParameterSpec> specs;
  if (is_fused(c)) {
    specs.push_back({"in_proj_weight", {w.q + w.k + w.v, c.model_dim}});
  } else {
    specs.push_back({"q_proj_weight", {w.q, c.model_dim}});
    specs.push_back({"k_proj_weight", {w.k, c.key_dim}});
    specs.push_back({"v_proj_weight", {w.v, c.value_dim}});
  }
  specs.push_back({"out_proj.weight", {c.model_dim, w.attended}});
  if (c.bias) {
    specs.push_back({"in_proj_bias", {w.q + w.k + w.v}});
    specs.push_back({"out_proj.bias", {c.model_dim}});
  }
  if (c.bias_kv) {
    specs.push_back({"bias_k", {1, 1, w.k}});
    specs.push_back({"bias_v", {1, 1, w.v}});
  }
  if (c.score == Score::kCosine) specs.push_back({"cosine_scale", {c.heads}});
  return specs;
}

StateDict initial_parameters(const MultiHeadAttentionConfig& config,
                             std::uint64_t seed) {
  StateDict parameters;
  Random random(seed);
  for (const ParameterSpec& spec : parameter_specs(config)) {
    Tensor& tensor = parameters[spec.name] = Tensor(spec.shape);
    draw(spec, tensor, random);
  }
  return parameters;
}

void check_parameters(const MultiHeadAttentionConfig& config,
                      const StateDict& parameters) {
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  for (const ParameterSpec& spec : specs) {
    const auto found = parameters.find(spec.name);
    require(found != parameters.end(), kWhere, "the parameter ", spec.name,
            " is missing; the layer has ", names_of(specs));
    const Tensor& tensor = found->second;
    require(tensor.dtype() == DType::kFloat32 && tensor.shape() == spec.shape,
            kWhere, "the parameter ", spec.name, " must be float32 ",
            to_string(spec.shape), "; it is ", to_string(tensor.dtype()), " ",
            to_string(tensor.shape()));
  }
  for (const auto& [name, tensor] : parameters) {
    const bool known =
        std::any_of(specs.begin(), specs.end(),
                    [&name = name](const auto& s) { return s.name == name; });
    require(known, kWhere, "there must be no other parameters than ",
            names_of(specs), "; there is ", name);
  }
}

}  // namespace regard::nn::detail
