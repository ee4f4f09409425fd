// SPDX-License-Identifier: Apache-2.0
// config.json of a translator.
#include <array>
#include <cstring>

#include "json/json.h"
#include "regard/core/error.h"
#include "regard/tasks/translator.h"
#include "tasks/beam_search.h"
#include "tasks/imported_translator.h"
#include "tasks/model_folder.h"
#include "text/tokenizers.h"

namespace regard::tasks {
namespace {

// In the order of the enumerators.
constexpr std::array kActivations = {"none", "relu",   "gelu", "gelu_tanh",
                                     "silu", "swiglu", "geglu"};
constexpr std::array kNorms = {"layer_norm", "rms_norm"};
constexpr std::array kPositions = {"sinusoidal", "learned", "rotary", "none"};

template <typename Enum, std::size_t N>
Enum named(const Json& value, const std::array<const char*, N>& names,
           const std::string& file) {
  const auto text = value.get<std::string>();
  for (std::size_t i = 0; i < N; ++i) {
    if (text == names[i]) return static_cast<Enum>(i);
  }
  throw_parse_error("Translator::load", "'", file, "' has an unknown name: '",
                    text, "'");
}

std::int64_t size_of(const Json& config, const char* key,
                     const std::string& file,
                     std::int64_t most = std::int64_t{1} << 24) {
  const Json& value = config.at(key);
  if (!value.is_integer() || value.get<std::int64_t>() < 1 ||
      value.get<std::int64_t>() > most) {
    throw_parse_error("Translator::load", "'", file, "': ", key,
                      " must be an integer from 1 to ", most, "; got ",
                      value.dump());
  }
  return value.get<std::int64_t>();
}

nn::TransformerConfig model_from(const Json& c, const std::string& file) {
  nn::TransformerConfig model;
  if (c.contains("vocab")) {
    model.source_vocab = model.target_vocab = size_of(c, "vocab", file);
  } else {
    model.source_vocab = size_of(c, "source_vocab", file);
    model.target_vocab = size_of(c, "target_vocab", file);
  }
  model.model_dim = size_of(c, "model_dim", file);
  model.heads = size_of(c, "heads", file);
  model.encoder_layers = size_of(c, "encoder_layers", file, kMostOwnLayers);
  model.decoder_layers = size_of(c, "decoder_layers", file, kMostOwnLayers);
  model.feed_forward_dim = size_of(c, "feed_forward_dim", file);
  model.max_length = size_of(c, "max_length", file);
  model.activation =
      named<nn::Activation>(c.at("activation"), kActivations, file);
  model.norm = named<nn::Norm>(c.at("norm"), kNorms, file);
  model.positions = named<nn::Positions>(c.at("positions"), kPositions, file);
  model.norm_epsilon = c.at("norm_epsilon").get<float>();
  model.norm_first = c.at("norm_first").get<bool>();
  model.final_norm = c.at("final_norm").get<bool>();
  model.shared_embeddings = c.value("shared_embeddings", true);
  model.tied_output = c.value("tied_output", true);
  model.output_bias = c.value("output_bias", model.output_bias);
  model.copy = c.value("copy", model.copy);
  model.embedding_scale = c.value("embedding_scale", model.embedding_scale);
  model.dropout = c.at("dropout").get<float>();
  model.attention_dropout = c.at("attention_dropout").get<float>();
  model.activation_dropout = c.at("activation_dropout").get<float>();
  model.label_smoothing = c.at("label_smoothing").get<float>();
  return model;
}

}  // namespace

nn::TransformerConfig with_decoder(const nn::EncoderConfig& c,
                                   std::int64_t decoder_layers) {
  nn::TransformerConfig t;
  t.source_vocab = t.target_vocab = c.vocab;
  t.model_dim = c.model_dim;
  t.heads = c.heads;
  t.encoder_layers = c.layers;
  t.decoder_layers = decoder_layers;
  t.feed_forward_dim = c.feed_forward_dim;
  t.activation = c.activation;
  t.norm = c.norm;
  t.norm_epsilon = c.norm_epsilon;
  t.norm_first = c.norm_first;
  t.positions = c.positions;
  t.max_length = c.max_length;
  t.shared_embeddings = t.tied_output = true;
  t.dropout = c.dropout;
  t.attention_dropout = c.attention_dropout;
  t.activation_dropout = c.activation_dropout;
  return t;
}

std::string config_to_json(const TranslatorConfig& config) {
  require(is_length_penalty(config.length_penalty), "config_to_json",
          "length_penalty must be from -10 to 10; got ", config.length_penalty);
  const nn::TransformerConfig& m = config.model;
  Json model = {
      {"model_dim", m.model_dim},
      {"heads", m.heads},
      {"encoder_layers", m.encoder_layers},
      {"decoder_layers", m.decoder_layers},
      {"feed_forward_dim", m.feed_forward_dim},
      {"max_length", m.max_length},
      {"activation", kActivations[static_cast<std::size_t>(m.activation)]},
      {"norm", kNorms[static_cast<std::size_t>(m.norm)]},
      {"positions", kPositions[static_cast<std::size_t>(m.positions)]},
      {"norm_epsilon", m.norm_epsilon},
      {"norm_first", m.norm_first},
      {"final_norm", m.final_norm},
      {"dropout", m.dropout},
      {"attention_dropout", m.attention_dropout},
      {"activation_dropout", m.activation_dropout},
      {"label_smoothing", m.label_smoothing}};
  if (m.source_vocab == m.target_vocab) {
    model["vocab"] = m.source_vocab;
  } else {
    model["source_vocab"] = m.source_vocab;
    model["target_vocab"] = m.target_vocab;
  }
  // What a file leaves out is as the models that are trained here have it.
  if (!m.shared_embeddings) model["shared_embeddings"] = false;
  if (!m.tied_output) model["tied_output"] = false;
  if (m.output_bias) model["output_bias"] = true;
  if (m.copy) model["copy"] = true;
  if (m.embedding_scale != 0) model["embedding_scale"] = m.embedding_scale;
  Json root = {{"kind", config.whole_texts ? kSummarizerKind : kTranslatorKind},
               {"languages",
                {{"source", config.languages.source},
                 {"target", config.languages.target},
                 {"both_directions", config.languages.both_directions}}},
               {"model", model}};
  if (config.length_penalty != 1) {
    root["length_penalty"] = config.length_penalty;
  }
  return root.dump(2) + "\n";
}

TranslatorConfig config_from_json(const std::string& text,
                                  const std::string& name) {
  TranslatorConfig config;
  try {
    const Json root =
        text::parse_json(text, "Translator::load: '" + name + "'");
    config.whole_texts = root.at("kind") == kSummarizerKind;
    if (!config.whole_texts && root.at("kind") != kTranslatorKind) {
      throw_parse_error(
          "Translator::load", "'", name,
          "' is of another kind of model: ", root.at("kind").dump());
    }
    const Json& languages = root.at("languages");
    config.languages.source = languages.at("source").get<std::string>();
    config.languages.target = languages.at("target").get<std::string>();
    config.languages.both_directions =
        languages.at("both_directions").get<bool>();
    config.model = model_from(root.at("model"), name);
    config.length_penalty = root.value("length_penalty", 1.0);
    if (!is_length_penalty(config.length_penalty)) {
      throw_parse_error("Translator::load", "'", name,
                        "': length_penalty must be from -10 to 10; got ",
                        config.length_penalty);
    }
  } catch (const JsonError& error) {
    throw_parse_error("Translator::load", "'", name,
                      "' is no config of a translator: ", error.what());
  }
  return config;
}

}  // namespace regard::tasks
