// SPDX-License-Identifier: Apache-2.0
// regard layer: a whole multi-head attention layer, weights from a file.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/commands.h"
#include "cli/layer_call.h"
#include "cli/mask_text.h"
#include "cli/tensor_file.h"
#include "cli/usage_error.h"
#include "regard/core/error.h"
#include "regard/io/safetensors.h"

namespace regard::cli {
namespace {

struct LayerFlags : AttentionFlags {
  std::string layer;
  bool add_zero_attn = false;
};

constexpr const char* kFiles =
    R"(The file holds the parameters of torch.nn.MultiheadAttention under its names:
in_proj_weight (or q_proj_weight, k_proj_weight, v_proj_weight), in_proj_bias,
out_proj.weight, out_proj.bias, bias_k, bias_v; and cosine_scale for cosine
scores. FILE.safetensors:PREFIX takes those whose names begin with PREFIX. All
sizes but the heads are read from the shapes. Parameters and inputs are computed
in float32, whatever the file holds.

Inputs are [len, width] or [batch, len, width].)";

constexpr const char* kExamples =
    R"(Examples:
  regard layer mha.safetensors -x x.npy --heads 8 --out y.npy
      self attention
  regard layer model.safetensors:decoder.layers.0.multihead_attn. \
      -q x.npy -k memory.npy --heads 8 --out y.npy --weights w.npy
      cross attention, with one layer of a larger model)";

// The parameters whose names begin with the prefix, without it, in float32.
StateDict load_parameters(const std::string& text) {
  const TensorPlace place = parse_place(text);
  const SafetensorsFile file = SafetensorsFile::open(place.path);
  StateDict parameters;
  for (const std::string& name : file.names()) {
    if (!name.starts_with(place.name)) continue;
    parameters.emplace(name.substr(place.name.size()),
                       converted(file.tensor(name), DType::kFloat32));
  }
  require(!parameters.empty(), "layer", "'", place.path.string(),
          "' has no parameter", place.name.empty() ? "" : " that begins with ",
          place.name);
  return parameters;
}

// What a layer's shapes tell of its config.
class Shapes {
 public:
  explicit Shapes(const StateDict& parameters) : parameters_(parameters) {}

  bool has(const std::string& name) const { return parameters_.contains(name); }

  // [rows, columns] of a matrix that must be there.
  std::pair<std::int64_t, std::int64_t> matrix(const std::string& name) const {
    const auto found = parameters_.find(name);
    require(found != parameters_.end(), "layer", "the file has no ", name);
    const Shape& shape = found->second.shape();
    require(shape.size() == 2, "layer", name, " must be a matrix; it is ",
            to_string(shape));
    return {shape[0], shape[1]};
  }

 private:
  const StateDict& parameters_;
};

std::int64_t divided(std::int64_t width, std::int64_t parts,
                     const std::string& what) {
  require(parts > 0 && width % parts == 0, "layer", what, " is ", width,
          " wide, which does not divide by ", parts);
  return width / parts;
}

nn::MultiHeadAttentionConfig config_of(const StateDict& parameters,
                                       const LayerFlags& flags) {
  const Shapes shapes(parameters);
  nn::MultiHeadAttentionConfig config;
  const auto [model_dim, value_width] = shapes.matrix("out_proj.weight");
  config.model_dim = model_dim;
  config.heads = flags.heads;
  config.kv_heads = flags.kv_heads;
  config.value_head_dim = divided(value_width, flags.heads, "out_proj.weight");
  if (shapes.has("in_proj_weight")) {
    // heads * d + kv_heads * d + kv_heads * value_head_dim rows.
    const std::int64_t kv_heads =
        flags.kv_heads != 0 ? flags.kv_heads : flags.heads;
    const std::int64_t rows = shapes.matrix("in_proj_weight").first;
    config.head_dim =
        divided(rows - kv_heads * config.value_head_dim, flags.heads + kv_heads,
                "in_proj_weight, without its part for values,");
  } else {
    const auto [query_width, query_dim] = shapes.matrix("q_proj_weight");
    const auto [key_width, key_dim] = shapes.matrix("k_proj_weight");
    config.head_dim = divided(query_width, flags.heads, "q_proj_weight");
    config.key_dim = key_dim;
    config.value_dim = shapes.matrix("v_proj_weight").second;
    if (config.kv_heads == 0) {
      config.kv_heads = divided(key_width, config.head_dim, "k_proj_weight");
    }
  }
  config.bias = shapes.has("in_proj_bias") || shapes.has("out_proj.bias");
  config.bias_kv = shapes.has("bias_k") || shapes.has("bias_v");
  config.add_zero_attn = flags.add_zero_attn;
  config.dropout = static_cast<float>(flags.dropout);
  if (shapes.has("cosine_scale")) config.score = Score::kCosine;
  if (flags.scale) config.scale = static_cast<float>(*flags.scale);
  return config;
}

void run_layer(const LayerFlags& flags) {
  if (flags.heads == 0) {
    throw UsageError(
        "--heads is needed: the file of a layer does not contain it");
  }
  check_flags(flags);
  StateDict parameters = load_parameters(flags.layer);
  const nn::MultiHeadAttentionConfig config = config_of(parameters, flags);
  const nn::MultiHeadAttention layer(config, std::move(parameters));
  Inputs inputs = load_inputs(flags);
  inputs.query = converted(std::move(inputs.query), DType::kFloat32);
  for (std::optional<Tensor>* own : {&inputs.own_key, &inputs.own_value}) {
    if (*own) *own = converted(**std::move(own), DType::kFloat32);
  }
  call_layer(layer, inputs, flags);
}

}  // namespace

Command add_layer(App& program) {
  const auto flags = std::make_shared<LayerFlags>();
  App* app = program.add_subcommand(
      "layer", "A multi-head attention layer, with weights from a file");
  app->footer(fmt::format("{}\n\n{}\n\n{}", kFiles, kMaskHelp, kExamples));
  app->add_option(
         "LAYER", flags->layer,
         "The layer's parameters, optionally with a prefix of their names")
      ->type_name("FILE.safetensors[:PREFIX]")
      ->required()
      ->check([](const std::string& text) -> std::string {
        const std::string wrong = check_place(text);
        if (!wrong.empty()) return wrong;
        return parse_place(text).is_safetensors
                   ? ""
                   : "a layer comes from a .safetensors file";
      });
  add_input_flags(*app, *flags);
  add_operation_flags(*app, *flags);
  app->add_flag("--add-zero-attn", flags->add_zero_attn,
                "Append a key and a value of zeros, as the layer was trained")
      ->group("Attention");
  add_output_flags(*app, *flags);
  return {app, [flags] { run_layer(*flags); }};
}

}  // namespace regard::cli
