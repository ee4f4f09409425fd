// SPDX-License-Identifier: Apache-2.0
// Encoder-decoder models as Hugging Face keeps them: Marian, BART and T5.
#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

#include "io/quote.h"
#include "io/read_file.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/io/safetensors.h"
#include "tasks/beam_search.h"
#include "tasks/imported_translator.h"
#include "tasks/imported_weights.h"

namespace regard::tasks {
namespace fs = std::filesystem;

namespace {

constexpr const char* kWhere = "Translator::load";
constexpr const char* kWeightsFile = "model.safetensors";

nn::Activation activation_of(const std::string& name, const fs::path& path) {
  if (name == "relu") return nn::Activation::kRelu;
  if (name == "gelu") return nn::Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") {
    return nn::Activation::kGeluTanh;
  }
  if (name == "silu" || name == "swish") return nn::Activation::kSilu;
  if (name == "gated-gelu") return nn::Activation::kGeglu;
  if (name == "gated-silu") return nn::Activation::kSwiglu;
  throw_parse_error(kWhere, "'", path.string(), "': the activation function ",
                    io::in_quotes(name), " is not known");
}

// Where the parts of a layer are, by their names in a family of models.
struct LayerNames {
  std::string self, cross;  // of q, k, v and the output
  std::string q, k, v, out;
  std::string self_norm, cross_norm, norm;  // the last: of the feed-forward
  std::string gate, up, down;               // gate empty: none
};

class Importer {
 public:
  Importer(const fs::path& folder, Json config)
      : folder_(folder),
        config_path_(folder / "config.json"),
        generation_path_(folder / "generation_config.json"),
        config_(std::move(config)) {
    std::error_code error;
    if (!fs::exists(folder / kWeightsFile, error)) {
      throw_io_error(kWhere, "'", folder.string(), "' has no ", kWeightsFile,
                     "; other files of weights are not read");
    }
    given_ = SafetensorsFile::open(folder / kWeightsFile).state_dict();
    if (io::is_there(generation_path_)) {
      generation_ = read_json_object(generation_path_);
    }
  }

  ImportedTranslator run() {
    const std::string type = text_in(config_, "model_type", config_path_, "");
    if (type == "t5" || type == "mt5") {
      read_t5();
    } else {
      read_bart(type == "marian");
    }
    read_tokens(type);
    for (const auto& [name, tensor] : given_) {
      // Tied weights may be in the file under each of their names.
      if (name.ends_with("embed_tokens.weight") || name == "lm_head.weight" ||
          name.ends_with("embed_positions.weight") ||
          name.ends_with("EncDecAttention.relative_attention_bias.weight")) {
        continue;
      }
      throw_parse_error(kWhere, "'", (folder_ / kWeightsFile).string(),
                        "': the tensor ", io::in_quotes(name),
                        " belongs to a kind of model that is not read");
    }
    return std::move(result_);
  }

 private:
  nn::TransformerConfig& model() { return result_.config.model; }
  StateDict& to() { return result_.weights; }
  bool has(const std::string& name) const { return given_.contains(name); }

  Tensor take(const std::string& name) {
    const auto found = given_.find(name);
    if (found == given_.end()) {
      throw_parse_error(kWhere, "'", (folder_ / kWeightsFile).string(),
                        "' has no tensor ", io::in_quotes(name));
    }
    Tensor tensor = as_float32(found->second, name);
    given_.erase(found);
    return tensor;
  }

  // A setting of the search and the file that has it; null where none does.
  struct Setting {
    const Json* value = nullptr;
    fs::path file{};
  };
  Setting setting(const char* key) const;

  std::int64_t size(const char* key, std::int64_t fallback = 0) const {
    return size_in(config_, key, config_path_, fallback);
  }
  bool flag(const char* key, bool fallback) const {
    const Json* const found = config_.find(key);
    if (found == nullptr || found->is_null()) return fallback;
    if (!found->is_boolean()) {
      throw_parse_error(kWhere, "'", config_path_.string(), "': ", key,
                        " must be true or false");
    }
    return found->get<bool>();
  }
  std::int64_t same_size(const char* a, const char* b) const {
    if (size(a) != size(b)) {
      throw_parse_error(kWhere, "'", config_path_.string(), "': ", a, " and ",
                        b, " must be equal; they are ", size(a), " and ",
                        size(b));
    }
    return size(a);
  }

  void take_norm(const std::string& name, const std::string& ours) {
    to()[ours + ".weight"] = take(name + ".weight");
    if (model().norm == nn::Norm::kLayerNorm) {
      to()[ours + ".bias"] = take(name + ".bias");
    }
  }
  void take_linear(const std::string& name, const std::string& ours) {
    to()[ours + ".weight"] = take(name + ".weight");
    if (model().linear_bias) to()[ours + ".bias"] = take(name + ".bias");
  }
  void take_attention(const std::string& name, const LayerNames& names,
                      const std::string& ours) {
    const auto joined = [&](const char* part) {
      const Tensor q = take(name + names.q + part);
      const Tensor k = take(name + names.k + part);
      const Tensor v = take(name + names.v + part);
      return stacked({&q, &k, &v});
    };
    to()[ours + ".in_proj_weight"] = joined(".weight");
    if (model().linear_bias) to()[ours + ".in_proj_bias"] = joined(".bias");
    take_linear(name + names.out, ours + ".out_proj");
  }
  void take_layer(const LayerNames& names, const std::string& ours) {
    const bool cross = !names.cross.empty();
    take_attention(names.self, names, ours + "self_attn");
    take_norm(names.self_norm, ours + "norm1");
    if (cross) {
      take_attention(names.cross, names, ours + "multihead_attn");
      take_norm(names.cross_norm, ours + "norm2");
    }
    take_norm(names.norm, ours + (cross ? "norm3" : "norm2"));
    if (names.gate.empty()) {
      take_linear(names.up, ours + "linear1");
    } else {
      const Tensor gate = take(names.gate + ".weight");
      const Tensor up = take(names.up + ".weight");
      to()[ours + "linear1.weight"] = stacked({&gate, &up});
    }
    take_linear(names.down, ours + "linear2");
  }

  // One table for both sides, and perhaps the output.
  void take_tables(const std::string& shared, const std::string& sides,
                   bool tied) {
    nn::TransformerConfig& c = model();
    c.tied_output = tied;
    if (c.shared_embeddings) {
      to()["embedding.weight"] =
          take(has(shared) ? shared : sides + "decoder.embed_tokens.weight");
    } else {
      to()["source_embedding.weight"] =
          take(sides + "encoder.embed_tokens.weight");
      to()["target_embedding.weight"] =
          take(sides + "decoder.embed_tokens.weight");
    }
    if (!tied) to()["output.weight"] = take("lm_head.weight");
  }

  void read_bart(bool marian);
  void read_t5();
  void read_tokens(const std::string& type);
  void read_bad_words();
  void read_length_penalty();
  std::int32_t token(const char* key, std::int32_t fallback) const;

  fs::path folder_, config_path_, generation_path_;
  Json config_;
  Json generation_ = Json::object();
  StateDict given_;
  ImportedTranslator result_;
};

// Norms after each block, biases everywhere. BART has a norm of the embeddings,
// learned positions whose first two rows nobody reads; Marian has sinusoids.
void Importer::read_bart(bool marian) {
  nn::TransformerConfig& c = model();
  c.model_dim = size("d_model");
  c.heads = same_size("encoder_attention_heads", "decoder_attention_heads");
  c.encoder_layers = size("encoder_layers");
  c.decoder_layers = size("decoder_layers");
  c.feed_forward_dim = same_size("encoder_ffn_dim", "decoder_ffn_dim");
  c.source_vocab = size("vocab_size");
  c.target_vocab =
      marian ? size("decoder_vocab_size", c.source_vocab) : c.source_vocab;
  c.activation = activation_of(
      text_in(config_, "activation_function", config_path_, "gelu"),
      config_path_);
  c.embedding_scale = flag("scale_embedding", false) ? 0.0f : 1.0f;
  c.norm_first = c.final_norm = false;
  c.embedding_norm = !marian;
  c.max_length = size("max_position_embeddings");
  c.positions = nn::Positions::kLearned;
  c.shared_embeddings =
      !marian || flag("share_encoder_decoder_embeddings", true);
  c.output_bias = true;
  take_tables("model.shared.weight", "model.",
              flag("tie_word_embeddings", true));
  if (has("final_logits_bias")) {
    const Tensor bias = take("final_logits_bias");
    Tensor row({bias.size()});
    std::copy_n(bias.values<float>().begin(), bias.size(),
                row.values<float>().begin());
    to()["output.bias"] = std::move(row);
  } else {
    c.output_bias = false;
  }
  // The tables bound what is computed for them, whatever the config says.
  constexpr std::int64_t kMostPlaces = std::int64_t{1} << 16;
  const Shape& shape = to().at(c.shared_embeddings ? "embedding.weight"
                                                   : "target_embedding.weight")
                           .shape();
  const std::int64_t width = shape.empty() ? 0 : shape.back();
  require(width == c.model_dim, kWhere, "d_model is ", c.model_dim,
          ", but the embeddings have ", width, " columns");
  for (const std::string side : {"encoder", "decoder"}) {
    const std::string ours = side == "encoder" ? "source" : "target";
    const std::string name = "model." + side;
    const std::string table = name + ".embed_positions.weight";
    if (has(table) || !marian) {
      Tensor places = take(table);
      to()[ours + "_positions.weight"] =
          marian ? std::move(places) : rows_from(places, 2);
    }
    if (c.embedding_norm) {
      take_norm(name + ".layernorm_embedding", side + ".embedding_norm");
    }
    const std::int64_t layers =
        side == "encoder" ? c.encoder_layers : c.decoder_layers;
    for (std::int64_t i = 0; i < layers; ++i) {
      const std::string at = name + ".layers." + std::to_string(i) + ".";
      LayerNames names;
      names.self = at + "self_attn.";
      if (side == "decoder") names.cross = at + "encoder_attn.";
      names.q = "q_proj";
      names.k = "k_proj";
      names.v = "v_proj";
      names.out = "out_proj";
      names.self_norm = at + "self_attn_layer_norm";
      names.cross_norm = at + "encoder_attn_layer_norm";
      names.norm = at + "final_layer_norm";
      names.up = at + "fc1";
      names.down = at + "fc2";
      take_layer(names, side + ".layers." + std::to_string(i) + ".");
    }
    if (!to().contains(ours + "_positions.weight")) {
      check_width(to(), width);
      to()[ours + "_positions.weight"] =
          split_sinusoids(std::min(c.max_length, kMostPlaces), width, 0,
                          static_cast<double>(width) / 2);
    }
  }
}

// Norms by the root mean square before each block, no biases, scores without a
// scale but with a bias for each distance.
void Importer::read_t5() {
  nn::TransformerConfig& c = model();
  c.model_dim = size("d_model");
  c.heads = size("num_heads");
  c.head_dim = size("d_kv");
  c.encoder_layers = size("num_layers");
  c.decoder_layers = size("num_decoder_layers", c.encoder_layers);
  c.feed_forward_dim = size("d_ff");
  c.source_vocab = c.target_vocab = size("vocab_size");
  c.activation =
      activation_of(text_in(config_, "feed_forward_proj", config_path_, "relu"),
                    config_path_);
  c.norm = nn::Norm::kRmsNorm;
  const Json* const epsilon = config_.find("layer_norm_epsilon");
  const bool given = epsilon != nullptr && epsilon->is_number();
  c.norm_epsilon = given ? epsilon->get<float>() : 1e-6f;
  c.norm_first = c.final_norm = true;
  c.linear_bias = false;
  c.positions = nn::Positions::kNone;
  c.relative_buckets = size("relative_attention_num_buckets", 32);
  c.relative_max_distance = size("relative_attention_max_distance", 128);
  c.attention_scale = 1.0f;
  c.embedding_scale = 1.0f;
  c.shared_embeddings = true;
  take_tables("shared.weight", "", !has("lm_head.weight"));
  for (const std::string side : {"encoder", "decoder"}) {
    const std::int64_t layers =
        side == "encoder" ? c.encoder_layers : c.decoder_layers;
    to()[side + ".relative_bias"] = take(
        side + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight");
    for (std::int64_t i = 0; i < layers; ++i) {
      const std::string at = side + ".block." + std::to_string(i) + ".layer.";
      const bool cross = side == "decoder";
      const std::string last = at + (cross ? "2." : "1.");
      LayerNames names;
      names.self = at + "0.SelfAttention.";
      if (cross) names.cross = at + "1.EncDecAttention.";
      names.q = "q";
      names.k = "k";
      names.v = "v";
      names.out = "o";
      names.self_norm = at + "0.layer_norm";
      names.cross_norm = at + "1.layer_norm";
      names.norm = last + "layer_norm";
      const bool gated = is_gated(c.activation);
      if (gated) names.gate = last + "DenseReluDense.wi_0";
      names.up = last + (gated ? "DenseReluDense.wi_1" : "DenseReluDense.wi");
      names.down = last + "DenseReluDense.wo";
      take_layer(names, side + ".layers." + std::to_string(i) + ".");
    }
    take_norm(side + ".final_layer_norm", side + ".norm");
  }
  // The output of a tied table is divided by sqrt(d): here by its norm.
  if (flag("scale_decoder_outputs", flag("tie_word_embeddings", true))) {
    const auto by =
        static_cast<float>(1 / std::sqrt(static_cast<double>(c.model_dim)));
    for (float& w : to().at("decoder.norm.weight").values<float>()) w *= by;
  }
}

// What generation_config.json says goes before the same in config.json.
Importer::Setting Importer::setting(const char* key) const {
  for (const Setting& of : {Setting{&generation_, generation_path_},
                            Setting{&config_, config_path_}}) {
    const Json* const found = of.value->find(key);
    if (found != nullptr && !found->is_null()) return {found, of.file};
  }
  return {};
}

std::int32_t Importer::token(const char* key, std::int32_t fallback) const {
  const Setting found = setting(key);
  if (found.value == nullptr) return fallback;
  const std::int64_t vocab = result_.config.model.target_vocab;
  if (!found.value->is_integer() || found.value->get<std::int64_t>() < 0 ||
      found.value->get<std::int64_t>() >= vocab) {
    throw_parse_error(kWhere, "'", found.file.string(), "': ", key,
                      " must be a piece's number, from 0 to ", vocab - 1,
                      "; got ", io::in_quotes(found.value->dump()));
  }
  return found.value->get<std::int32_t>();
}

// Scores are divided as ours are: by the length with the end, and without what
// the decoder reads first.
void Importer::read_length_penalty() {
  constexpr const char* kKey = "length_penalty";
  const Setting found = setting(kKey);
  if (found.value == nullptr) return;
  if (!found.value->is_number() ||
      !is_length_penalty(found.value->get<double>())) {
    throw_parse_error(kWhere, "'", found.file.string(), "': ", kKey,
                      " must be a number from -10 to 10; got ",
                      io::in_quotes(found.value->dump()));
  }
  result_.config.length_penalty = found.value->get<double>();
}

// [[58100], ...]: pieces that are never said.
void Importer::read_bad_words() {
  constexpr const char* kKey = "bad_words_ids";
  std::vector<std::int32_t>& never = result_.tokens.never;
  never.clear();
  const Setting found = setting(kKey);
  if (found.value == nullptr) return;
  const Json& bad = *found.value;
  const auto is_piece = [&](const Json& word) {
    return word.is_array() && word.size() == 1 && word[0].is_integer() &&
           word[0].get<std::int64_t>() >= 0 &&
           word[0].get<std::int64_t>() < result_.config.model.target_vocab;
  };
  if (!bad.is_array() || !std::all_of(bad.begin(), bad.end(), is_piece)) {
    throw_parse_error(kWhere, "'", found.file.string(), "': ", kKey,
                      " must be a list of lists, each with one piece's number "
                      "below ",
                      result_.config.model.target_vocab);
  }
  for (const Json& word : bad) never.push_back(word[0].get<std::int32_t>());
}

void Importer::read_tokens(const std::string& type) {
  std::shared_ptr<const text::Tokenizer> both = text::load_tokenizer(folder_);
  const text::SpecialIds special = both->special();
  TranslatorTokens& tokens = result_.tokens;
  tokens.end = token("eos_token_id", special.end);
  tokens.begin =
      token("decoder_start_token_id", token("bos_token_id", special.begin));
  tokens.first = token("forced_bos_token_id", -1);
  if (type == "bart") {
    tokens.source_begin = token("bos_token_id", special.begin);
  }
  if (tokens.end < 0 || tokens.begin < 0 || special.end < 0) {
    throw_parse_error(kWhere, "'", folder_.string(),
                      "': its config must name the pieces that begin and end a "
                      "sentence, its tokenizer the end; they are ",
                      tokens.begin, ", ", tokens.end, " and ", special.end);
  }
  read_bad_words();
  read_length_penalty();
  result_.source = result_.target = std::move(both);
  result_.config.whole_texts = type != "marian";
}

}  // namespace

bool is_translator_type(const std::string& type) {
  return type == "marian" || type == "bart" || type == "t5" || type == "mt5";
}

bool is_hugging_face(const std::string& config) {
  const Json parsed = Json::parse_or_null(config);
  return parsed.is_object() && !parsed.contains("kind") &&
         parsed.contains("model_type");
}

ImportedTranslator load_hugging_face(const fs::path& folder) {
  Json config = read_json_object(folder / "config.json");
  const std::string type =
      text_in(config, "model_type", folder / "config.json", "");
  if (!is_translator_type(type)) {
    throw_parse_error(
        kWhere, "'", (folder / "config.json").string(),
        "' is of a model that does not translate: ", io::in_quotes(type),
        "; marian, bart, t5 and mt5 are read");
  }
  return Importer(folder, std::move(config)).run();
}

}  // namespace regard::tasks
