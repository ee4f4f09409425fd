// SPDX-License-Identifier: Apache-2.0
// config.json of Hugging Face's decoders.
#include <algorithm>
#include <cmath>
#include <string>

#include "json/json.h"
#include "tasks/language_files.h"
#include "text/field.h"
#include "text/tokenizers.h"

namespace regard::tasks {
namespace {

using text::Field;

std::int64_t size_of(const Field& field, std::int64_t most = kMostModelSize) {
  const std::int64_t size = field.count();
  if (size < 1 || size > most) {
    field.fail("must be 1 to ", most, "; it is ", size);
  }
  return size;
}
std::int64_t size_of(const Field& c, const char* key, std::int64_t otherwise) {
  return c.has(key) ? size_of(c[key]) : otherwise;
}
double real_of(const Field& c, const char* key, double otherwise) {
  return c.has(key) ? c[key].real() : otherwise;
}
// A null means none; only a field that is not there has the default.
float softcap_of(const Field& c, const char* key, float otherwise) {
  if (!c.json().contains(key)) return otherwise;
  return c.has(key) ? static_cast<float>(c[key].real()) : 0.0f;
}

bool is_one_of(const std::string& type,
               std::initializer_list<const char*> types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

// The one without its gate, of which it may have one.
ops::Activation activation_of(const Field& field) {
  const std::string& name = field.text();
  if (name == "silu" || name == "swish") return ops::Activation::kSilu;
  if (is_one_of(name, {"gelu_pytorch_tanh", "gelu_new", "gelu_fast"})) {
    return ops::Activation::kGeluTanh;
  }
  if (name == "gelu") return ops::Activation::kGelu;
  if (name == "relu") return ops::Activation::kRelu;
  field.fail("is an activation that is not read: ", io::in_quotes(name));
}

ops::Activation gated_activation_of(const Field& c, const std::string& type) {
  const bool gemma = type.starts_with("gemma");
  const char* key =
      gemma && c.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  if (!c.has(key)) {
    return gemma ? ops::Activation::kGeglu : ops::Activation::kSwiglu;
  }
  const ops::Activation f = activation_of(c[key]);
  if (f == ops::Activation::kSilu) return ops::Activation::kSwiglu;
  // The first Gemma says "gelu" and was trained with the approximation.
  const bool old_gemma = type == "gemma" && f == ops::Activation::kGelu;
  if (f == ops::Activation::kGeluTanh || old_gemma) {
    return ops::Activation::kGeglu;
  }
  c[key].fail("is no gate that is read: ", io::in_quotes(c[key].text()));
}

void read_yarn(const Field& rope, nn::RotaryConfig& r) {
  r.scaling = nn::RotaryScaling::kYarn;
  r.beta_fast = real_of(rope, "beta_fast", r.beta_fast);
  r.beta_slow = real_of(rope, "beta_slow", r.beta_slow);
  r.attention_factor = real_of(rope, "attention_factor", 0);
  const double m = real_of(rope, "mscale", 0);
  const double m_all = real_of(rope, "mscale_all_dim", 0);
  if (r.attention_factor == 0 && m != 0 && m_all != 0 && r.factor > 1) {
    const double log = 0.1 * std::log(r.factor);
    r.attention_factor = (m * log + 1) / (m_all * log + 1);
  }
  if (!rope.flag("truncate", true)) {
    rope["truncate"].fail("must be true for YaRN; it is false");
  }
}

// What config.json says of rotary positions, old or new: rope_theta and
// rope_scaling, or all in rope_parameters.
nn::RotaryConfig rotary_of(const Field& c, const Field& rope, double base,
                           const LanguageModelConfig& model) {
  nn::RotaryConfig r;
  const double part = real_of(rope, "partial_rotary_factor",
                              real_of(c, "partial_rotary_factor", 1.0));
  if (!(part > 0 && part <= 1)) {
    c.fail("must have a partial_rotary_factor above 0 and at most 1; it is ",
           part);
  }
  r.rotary_dim =
      static_cast<std::int64_t>(static_cast<double>(model.head_dim) * part);
  r.base = real_of(rope, "rope_theta", base);
  const char* key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string type = rope.text(key, "default");
  if (type == "default") return r;
  r.trained_length =
      size_of(rope, "original_max_position_embeddings",
              size_of(c, "original_max_position_embeddings", model.context));
  r.factor = real_of(rope, "factor",
                     static_cast<double>(model.context) /
                         static_cast<double>(r.trained_length));
  const bool phi3 = c["model_type"].text() == "phi3";
  if (type == "linear" && !phi3) {
    r.scaling = nn::RotaryScaling::kLinear;
  } else if (type == "llama3" && !phi3) {
    r.scaling = nn::RotaryScaling::kLlama3;
    r.low_frequency = rope["low_freq_factor"].real();
    r.high_frequency = rope["high_freq_factor"].real();
  } else if (type == "yarn" && !phi3) {
    read_yarn(rope, r);
  } else {
    rope[key].fail("is a RoPE scaling that is not read: ", io::in_quotes(type),
                   phi3 ? "; Phi-3 has none" : "; linear, llama3 and yarn are");
  }
  return r;
}

void read_rotary(const Field& c, const std::string& type,
                 LanguageModelConfig& model) {
  const bool two = type == "gemma3_text";
  const double base = real_of(c, "rope_theta", two ? 1e6 : 10000.0);
  const Json none = Json::object();
  const Field empty(none, "");
  const bool renewed = c.has("rope_parameters");
  const Field given = renewed                 ? c["rope_parameters"]
                      : c.has("rope_scaling") ? c["rope_scaling"]
                                              : empty;
  if (!given.is_object()) given.expect("an object");
  if (!two) {
    model.rotary = rotary_of(c, given, base, model);
    return;
  }
  const auto part = [&](const char* name) {
    return given.has(name) ? given[name] : empty;
  };
  model.rotary =
      rotary_of(c, renewed ? part("full_attention") : given, base, model);
  model.window_rotary =
      rotary_of(c, part("sliding_attention"),
                real_of(c, "rope_local_base_freq", 10000.0), model);
}

// Which layers have the window.
void read_windows(const Field& c, const std::string& type,
                  LanguageModelConfig& model) {
  const bool qwen = is_one_of(type, {"qwen2", "qwen3"});
  const bool gemma = is_one_of(type, {"gemma2", "gemma3_text"});
  if (!gemma && !qwen && !is_one_of(type, {"mistral", "phi3"})) return;
  if (!c.has("sliding_window")) {
    // A Gemma may say that it has none, but must say so.
    if (gemma) static_cast<void>(c["sliding_window"]);
    return;
  }
  if (qwen && !c.flag("use_sliding_window", false)) return;
  model.window = size_of(c["sliding_window"]);
  if (!qwen && !gemma) return;  // all layers
  if (c.has("layer_types")) {
    const Field types = c["layer_types"];
    if (!types.is_array() || std::ssize(types.json()) != model.layers) {
      types.fail("must be an array with an element for each of ", model.layers,
                 " layers");
    }
    types.for_each([&](const Field& one) {
      if (!is_one_of(one.text(), {"full_attention", "sliding_attention"})) {
        one.fail("must be full_attention or sliding_attention; it is ",
                 io::in_quotes(one.text()));
      }
      model.windowed.push_back(one.text() == "sliding_attention");
    });
    return;
  }
  const std::int64_t first = qwen ? size_of(c, "max_window_layers", 28) : 0;
  const std::int64_t period =
      type == "gemma2" ? 2 : size_of(c, "sliding_window_pattern", 6);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    model.windowed.push_back(qwen ? i >= first : (i + 1) % period != 0);
  }
}

void read_gemma(const Field& c, const std::string& type,
                LanguageModelConfig& model) {
  model.embedding_scale =
      static_cast<float>(std::sqrt(static_cast<double>(model.model_dim)));
  if (type == "gemma") return;
  model.result_norms = true;
  const double scalar = real_of(c, "query_pre_attn_scalar", 256);
  if (!(scalar > 0)) c["query_pre_attn_scalar"].expect("a positive number");
  model.attention_scale = static_cast<float>(1 / std::sqrt(scalar));
  const bool second = type == "gemma2";
  model.attention_softcap =
      softcap_of(c, "attn_logit_softcapping", second ? 50.0f : 0.0f);
  model.output_softcap =
      softcap_of(c, "final_logit_softcapping", second ? 30.0f : 0.0f);
  if (c.flag("use_bidirectional_attention", false)) {
    c["use_bidirectional_attention"].fail("must be false; it is true");
  }
}

LanguageModelConfig read_gpt2(const Field& c) {
  LanguageModelConfig model;
  model.vocab = size_of(c["vocab_size"]);
  model.model_dim = size_of(c["n_embd"]);
  model.layers = size_of(c["n_layer"], kMostLayers);
  model.heads = model.kv_heads = size_of(c["n_head"]);
  model.context = size_of(c["n_positions"]);
  model.feed_forward_dim = size_of(c, "n_inner", 4 * model.model_dim);
  if (model.model_dim % model.heads != 0) {
    c["n_head"].fail("must divide n_embd; they are ", model.heads, " and ",
                     model.model_dim);
  }
  model.head_dim = model.model_dim / model.heads;
  model.norm = ops::Norm::kLayerNorm;
  model.norm_epsilon =
      static_cast<float>(real_of(c, "layer_norm_epsilon", 1e-5));
  model.activation = c.has("activation_function")
                         ? activation_of(c["activation_function"])
                         : ops::Activation::kGeluTanh;
  for (const auto& [key, value] : {std::pair{"scale_attn_weights", true},
                                   {"scale_attn_by_inverse_layer_idx", false},
                                   {"add_cross_attention", false}}) {
    if (c.flag(key, value) != value) {
      c[key].fail("must be ", value ? "true" : "false");
    }
  }
  model.learned_positions = model.fused_qkv = true;
  model.qkv_bias = model.attention_output_bias = true;
  model.feed_forward_bias = true;
  model.tied_output = c.flag("tie_word_embeddings", true);
  return model;
}

LanguageModelConfig read_llama(const Field& c, const std::string& type) {
  const bool gemma = type.starts_with("gemma");
  LanguageModelConfig model;
  model.pairing = nn::RotaryPairing::kHalfSplit;
  model.vocab = size_of(c["vocab_size"]);
  model.model_dim = size_of(c["hidden_size"]);
  model.layers = size_of(c["num_hidden_layers"], kMostLayers);
  model.heads = size_of(c["num_attention_heads"]);
  model.kv_heads = size_of(c, "num_key_value_heads", model.heads);
  model.feed_forward_dim = size_of(c["intermediate_size"]);
  model.context = size_of(c["max_position_embeddings"]);
  if (!c.has("head_dim") && model.model_dim % model.heads != 0) {
    c["num_attention_heads"].fail("must divide hidden_size; they are ",
                                  model.heads, " and ", model.model_dim);
  }
  const std::int64_t usual = type == "qwen3" ? 128
                             : gemma         ? 256
                                             : model.model_dim / model.heads;
  model.head_dim = size_of(c, "head_dim", usual);
  model.norm_epsilon = static_cast<float>(
      real_of(c, "rms_norm_eps", type == "phi3" ? 1e-5 : 1e-6));
  model.activation = gated_activation_of(c, type);
  read_rotary(c, type, model);
  read_windows(c, type, model);
  if (gemma) read_gemma(c, type, model);
  const bool bias = c.flag("attention_bias", false) &&
                    !is_one_of(type, {"mistral", "qwen2", "phi3"});
  model.qkv_bias = bias || type == "qwen2";
  model.attention_output_bias = bias;
  model.feed_forward_bias = type == "llama" && c.flag("mlp_bias", false);
  model.qk_norm = is_one_of(type, {"qwen3", "gemma3_text"});
  model.fused_qkv = model.fused_gate_up = type == "phi3";
  model.tied_output = c.flag("tie_word_embeddings", gemma);
  return model;
}

}  // namespace

bool is_decoder_type(const std::string& type) {
  return is_one_of(type, {"llama", "mistral", "qwen2", "qwen3", "gemma",
                          "gemma2", "gemma3_text", "phi3", "gpt2"});
}

LanguageModelConfig parse_hugging_face_config(const std::string& text,
                                              const std::string& where) {
  const Json json = text::parse_json(text, where);
  const Field c(json, where);
  const std::string& type = c["model_type"].text();
  if (c.has("quantization_config")) {
    c["quantization_config"].fail(
        "must not be there: weights are read as float32, float16 or bfloat16, "
        "and quantised ones from GGUF");
  }
  if (type == "gpt2") return read_gpt2(c);
  if (!is_decoder_type(type)) {
    c["model_type"].fail(
        "must be llama, mistral, qwen2, qwen3, gemma, gemma2, gemma3_text, "
        "phi3 or gpt2; it is ",
        io::in_quotes(type));
  }
  return read_llama(c, type);
}

}  // namespace regard::tasks
