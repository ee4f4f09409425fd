// SPDX-License-Identifier: Apache-2.0
// Language models from GGUF.
#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "io/quote.h"
#include "regard/core/error.h"
#include "regard/tasks/language_model.h"
#include "tasks/language_files.h"
#include "tasks/language_weights.h"

namespace regard::tasks {
namespace {

// The settings of a model, checked as they are read.
class Settings {
 public:
  Settings(const GgufFile& file, std::string architecture)
      : file_(file), architecture_(std::move(architecture)) {}

  const char* where() const { return file_.where().c_str(); }
  bool is(std::string_view architecture) const {
    return architecture_ == architecture;
  }
  std::string key(const std::string& name) const {
    return architecture_ + "." + name;
  }

  // Files write 0 for what a model does not have: experts, a window.
  bool has(const std::string& name) const {
    return file_.integer(key(name)).value_or(0) != 0;
  }
  std::int64_t size(const std::string& name) const {
    const auto value = file_.integer(key(name));
    if (!value) {
      throw_parse_error(where(), "the setting ", key(name), " is missing");
    }
    return checked(name, *value);
  }
  std::int64_t size(const std::string& name, std::int64_t otherwise) const {
    return checked(name, file_.integer(key(name)).value_or(otherwise));
  }
  double real(const std::string& name, double otherwise) const {
    return file_.real(key(name)).value_or(otherwise);
  }
  std::string text(const std::string& name, std::string_view otherwise) const {
    return std::string(file_.text(key(name)).value_or(otherwise));
  }

 private:
  std::int64_t checked(const std::string& name, std::int64_t value) const {
    if (value <= 0 || value > kMostModelSize) {
      throw_parse_error(where(), key(name), " must be 1 to ", kMostModelSize,
                        "; it is ", value);
    }
    return value;
  }

  const GgufFile& file_;
  std::string architecture_;
};

nn::RotaryConfig rotary_of(const GgufFile& file, const Settings& settings,
                           std::int64_t head_dim) {
  nn::RotaryConfig rotary;
  rotary.rotary_dim = settings.size("rope.dimension_count", head_dim);
  rotary.base = settings.real("rope.freq_base", rotary.base);
  if (file.contains("rope_freqs.weight")) {
    const Tensor divisors = file.tensor("rope_freqs.weight");
    const auto values = divisors.values<float>();
    rotary.divisors.assign(values.begin(), values.end());
  }
  // What is not said is as llama.cpp has it: the type is linear, and a factor
  // of 0 is none. Files of 2023 have another key for the factor.
  const std::string type = settings.text("rope.scaling.type", "linear");
  if (type == "none") return rotary;
  const double factor = settings.real("rope.scaling.factor",
                                      settings.real("rope.scale_linear", 0));
  if (factor != 0) rotary.factor = factor;
  if (type == "linear") {
    if (rotary.factor != 1) rotary.scaling = nn::RotaryScaling::kLinear;
  } else if (type == "yarn") {
    rotary.scaling = nn::RotaryScaling::kYarn;
    rotary.trained_length =
        settings.size("rope.scaling.original_context_length");
    rotary.attention_factor =
        settings.real("rope.scaling.attn_factor", rotary.attention_factor);
  } else {
    throw_parse_error(settings.where(), settings.key("rope.scaling.type"),
                      " must be none, linear or yarn; it is ",
                      io::in_quotes(type));
  }
  return rotary;
}

std::string architecture_of(const GgufFile& file) {
  constexpr std::array kKnown = {"llama",  "qwen2",  "qwen3", "gemma",
                                 "gemma2", "gemma3", "phi3",  "gpt2"};
  const auto architecture = file.text("general.architecture");
  if (!architecture) {
    throw_parse_error(file.where().c_str(),
                      "the setting general.architecture is missing");
  }
  for (const char* known : kKnown) {
    if (*architecture == known) return known;
  }
  throw_parse_error(file.where().c_str(),
                    "the architectures llama, qwen2, qwen3, gemma, gemma2, "
                    "gemma3, phi3 and gpt2 are read; this is ",
                    io::in_quotes(*architecture));
}

void read_sizes(const GgufFile& file, const Settings& settings,
                LanguageModelConfig& c) {
  c.model_dim = settings.size("embedding_length");
  c.layers = settings.size("block_count");
  if (c.layers > kMostLayers) {
    throw_parse_error(settings.where(), settings.key("block_count"),
                      " must be 1 to ", kMostLayers, "; it is ", c.layers);
  }
  c.heads = settings.size("attention.head_count");
  c.kv_heads = settings.size("attention.head_count_kv", c.heads);
  c.feed_forward_dim = settings.size("feed_forward_length");
  c.context = settings.size("context_length");
  if (c.model_dim % c.heads != 0 && !settings.has("attention.key_length")) {
    throw_parse_error(settings.where(), "heads must divide model_dim; ",
                      c.heads, " and ", c.model_dim, " came");
  }
  c.head_dim = settings.size("attention.key_length", c.model_dim / c.heads);
  const std::int64_t value_dim =
      settings.size("attention.value_length", c.head_dim);
  if (value_dim != c.head_dim) {
    throw_parse_error(settings.where(),
                      "keys and values must be of one length; they are ",
                      c.head_dim, " and ", value_dim);
  }
  if (file.contains("token_embd.weight")) {
    const Shape& shape = file.shape("token_embd.weight");
    c.vocab = shape.size() == 2 ? shape[0] : 0;
  }
  c.vocab = settings.size("vocab_size", c.vocab);
  if (settings.has("expert_count")) {
    throw_parse_error(settings.where(),
                      "models with experts are not read; this has ",
                      settings.size("expert_count"));
  }
}

void read_gemma(const Settings& settings, LanguageModelConfig& c) {
  c.activation = ops::Activation::kGeglu;
  c.embedding_scale =
      static_cast<float>(std::sqrt(static_cast<double>(c.model_dim)));
  if (settings.is("gemma")) return;
  c.result_norms = true;
  c.qk_norm = settings.is("gemma3");
  c.attention_softcap =
      static_cast<float>(settings.real("attn_logit_softcapping", 0));
  c.output_softcap =
      static_cast<float>(settings.real("final_logit_softcapping", 0));
  // The format has no setting for it: the largest models scale by the width of
  // a head that model_dim would make, and not by that of theirs.
  const std::int64_t largest = c.qk_norm ? 62 : 46;
  if (c.layers == largest) {
    c.attention_scale = static_cast<float>(
        1 / std::sqrt(static_cast<double>(c.model_dim / c.heads)));
  }
  // Every other layer has the window, or all but every sixth.
  const std::int64_t period = c.qk_norm ? 6 : 2;
  for (std::int64_t i = 0; i < c.layers; ++i) {
    c.windowed.push_back((i + 1) % period != 0);
  }
  if (c.qk_norm) {
    c.window_rotary = {.rotary_dim = c.rotary.rotary_dim,
                       .base = settings.real("rope.freq_base_swa", 10000.0)};
  }
}

void read_gpt2(const Settings& settings, LanguageModelConfig& c) {
  c.norm = ops::Norm::kLayerNorm;
  c.norm_epsilon = static_cast<float>(
      settings.real("attention.layer_norm_epsilon", c.norm_epsilon));
  c.activation = ops::Activation::kGeluTanh;
  c.rotary = {};
  c.learned_positions = true;
  c.qkv_bias = c.attention_output_bias = c.feed_forward_bias = true;
}

// Only the first part has settings, and none has all of the parameters.
void check_whole(const GgufFile& file) {
  const std::int64_t parts = file.integer("split.count").value_or(1);
  if (parts <= 1) return;
  throw_parse_error(file.where().c_str(), "this is one of ", parts,
                    " parts of a model; llama-gguf-split --merge joins them");
}

LanguageModelConfig config_of(const GgufFile& file) {
  check_whole(file);
  const Settings settings(file, architecture_of(file));
  LanguageModelConfig c;
  read_sizes(file, settings, c);
  c.norm_epsilon = static_cast<float>(
      settings.real("attention.layer_norm_rms_epsilon", c.norm_epsilon));
  c.rotary = rotary_of(file, settings, c.head_dim);
  if (!settings.is("llama")) c.pairing = nn::RotaryPairing::kHalfSplit;
  if (settings.has("attention.sliding_window")) {
    c.window = settings.size("attention.sliding_window");
  }
  // What the format does not say, its tensors do.
  c.fused_qkv = file.contains("blk.0.attn_qkv.weight");
  c.qkv_bias = settings.is("qwen2") || file.contains("blk.0.attn_q.bias") ||
               file.contains("blk.0.attn_qkv.bias");
  c.attention_output_bias = file.contains("blk.0.attn_output.bias");
  c.feed_forward_bias = file.contains("blk.0.ffn_down.bias");
  c.tied_output = !file.contains("output.weight");
  c.qk_norm = settings.is("qwen3");
  if (settings.is("phi3")) {
    c.fused_gate_up = true;
    if (file.contains("rope_factors_long.weight")) {
      throw_parse_error(settings.where(),
                        "LongRoPE is not read; the file has "
                        "rope_factors_long.weight");
    }
  }
  if (settings.is("gemma") || settings.is("gemma2") || settings.is("gemma3")) {
    read_gemma(settings, c);
  }
  if (settings.is("gpt2")) read_gpt2(settings, c);
  return c;
}

}  // namespace

LanguageModel model_from(const std::string& where,
                         const LanguageModelConfig& config,
                         const ParameterSource& source,
                         ops::WeightStorage storage) {
  try {
    return make_language_model(config, source, storage);
  } catch (const InvalidArgument& error) {
    throw_parse_error(where.c_str(), error.what());
  }
}

LanguageModel LanguageModel::from_gguf(const GgufFile& file,
                                       ops::WeightStorage storage) {
  const LanguageModelConfig config = config_of(file);
  ParameterSource source;
  for (const std::string& name : file.names()) {
    if (name == "rope_freqs.weight") continue;  // it is in the config
    const Shape& shape = file.shape(name);
    if (shape.empty() || shape.size() > 2) {
      throw_parse_error(file.where().c_str(), io::in_quotes(name),
                        " must be a vector or a matrix; its shape is ",
                        to_string(shape));
    }
    Parameter& parameter = source.parameters[name];
    parameter = {shape, [&file, name] { return file.tensor(name); }};
    if (const auto groups = file.groups(name)) {
      parameter.codes = {*groups,
                         [&file, name](std::int64_t row, std::int8_t* codes,
                                       float* scales, float* minima) {
                           file.read_groups(name, row, codes, scales, minima);
                         }};
    }
  }
  return model_from(file.where(), config, source, storage);
}

}  // namespace regard::tasks
