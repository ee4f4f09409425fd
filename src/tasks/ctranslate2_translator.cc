// SPDX-License-Identifier: Apache-2.0
// Encoder-decoder models as CTranslate2 keeps them.
#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include "io/quote.h"
#include "io/read_file.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/io/ctranslate2.h"
#include "regard/text/lines.h"
#include "tasks/imported_translator.h"
#include "tasks/imported_weights.h"
#include "text/tokenizers.h"

namespace regard::tasks {
namespace fs = std::filesystem;

namespace {

constexpr const char* kWhere = "Translator::load";
constexpr const char* kModelFile = "model.bin";

// Gives out a model's variables, and knows which nobody asked for.
class Variables {
 public:
  explicit Variables(const fs::path& path)
      : path_(path), file_(Ctranslate2File::open(path)) {}

  const Ctranslate2File& file() const { return file_; }
  bool has(const std::string& name) const { return file_.contains(name); }

  Tensor take(const std::string& name) {
    skip(name);
    Tensor values = file_.values(name);
    // An alias costs a file nothing, its copy as much as the variable.
    taken_ += values.size();
    if (taken_ > kMostCopies * stored_bytes()) {
      refuse(name, "is one alias too many for the size of the file");
    }
    return values;
  }
  // It is read under another name.
  void skip(const std::string& name) {
    asked_.insert(name);
    asked_.insert(name + "_scale");
  }
  std::int64_t setting(const std::string& name, std::int64_t fallback) {
    asked_.insert(name);
    return file_.setting(name).value_or(fallback);
  }
  // Is it the same memory under two names?
  bool same(const std::string& a, const std::string& b) const {
    return has(a) && has(b) &&
           file_.variables().at(a).bytes.data() ==
               file_.variables().at(b).bytes.data();
  }

  [[noreturn]] void refuse(const std::string& name, const char* why) const {
    throw_parse_error(kWhere, "'", path_.string(), "': the variable ",
                      io::in_quotes(name), " ", why);
  }

  // A part that was not read would be a model that is not the same.
  void check_all_read() const {
    for (const auto& [name, variable] : file_.variables()) {
      if (asked_.contains(name)) continue;
      const bool off =
          variable.shape.empty() &&
          std::all_of(variable.bytes.begin(), variable.bytes.end(),
                      [](std::byte b) { return b == std::byte(); });
      const bool harmless = name.find("alignment_") != std::string::npos ||
                            name.ends_with("/scale_alibi") ||
                            name.ends_with("/alibi_use_positive_positions");
      if (!off && !harmless) {
        refuse(name, "belongs to a kind of model that is not read");
      }
    }
  }

 private:
  static constexpr std::int64_t kMostCopies = 8;

  // Of all variables, each counted once.
  std::int64_t stored_bytes() {
    if (stored_bytes_ > 0) return stored_bytes_;
    std::set<const std::byte*> seen;
    for (const auto& [name, variable] : file_.variables()) {
      if (seen.insert(variable.bytes.data()).second) {
        stored_bytes_ += std::ssize(variable.bytes);
      }
    }
    return stored_bytes_;
  }

  fs::path path_;
  Ctranslate2File file_;
  std::set<std::string> asked_;
  std::int64_t taken_ = 0;  // elements
  std::int64_t stored_bytes_ = 0;
};

// Both sides must agree about it.
template <typename Read>
auto of_both(const Variables& from, const std::string& name, const Read& read) {
  const auto encoder = read("encoder/" + name);
  if (encoder != read("decoder/" + name)) {
    from.refuse("decoder/" + name, "must be as the encoder has it");
  }
  return encoder;
}

nn::Activation activation_of(const Variables& from, std::int64_t number,
                             bool gated) {
  switch (number) {
    case 0:
      if (!gated) return nn::Activation::kRelu;
      break;
    case 1:
      return gated ? nn::Activation::kGeglu : nn::Activation::kGeluTanh;
    case 2:
      return gated ? nn::Activation::kSwiglu : nn::Activation::kSilu;
    case 3:
      if (!gated) return nn::Activation::kGelu;
      break;
    default:
      break;
  }
  from.refuse("encoder/activation", "names a function that is not known");
}

std::int64_t count_layers(const Variables& from, const std::string& side) {
  std::int64_t count = 0;
  while (from.has(side + "/layer_" + std::to_string(count) +
                  "/self_attention/linear_0/weight")) {
    ++count;
  }
  return count;
}

// Turns CTranslate2's names into ours.
class Importer {
 public:
  explicit Importer(const fs::path& folder)
      : folder_(folder), from_(folder / kModelFile) {}

  ImportedTranslator run() {
    read_config();
    read_weights();
    from_.check_all_read();
    read_vocabularies();
    return std::move(result_);
  }

 private:
  nn::TransformerConfig& model() { return result_.config.model; }

  void read_config() {
    const std::string& spec = from_.file().spec();
    const std::int64_t old_heads = spec == "TransformerBig" ? 16 : 8;
    nn::TransformerConfig& c = model();
    const auto both = [&](const char* name, std::int64_t fallback) {
      return of_both(from_, name, [&](const std::string& full) {
        return from_.setting(full, fallback);
      });
    };
    c.heads = both("num_heads", old_heads);
    c.norm_first = both("pre_norm", 1) != 0;
    c.encoder_layers = count_layers(from_, "encoder");
    c.decoder_layers = count_layers(from_, "decoder");
    if (c.encoder_layers == 0 || c.decoder_layers == 0) {
      throw_parse_error(kWhere, "'", (folder_ / kModelFile).string(),
                        "' is no model with an encoder and a decoder but ",
                        io::in_quotes(spec));
    }
    c.activation =
        activation_of(from_, both("activation", 0),
                      from_.has("encoder/layer_0/ffn/linear_0_noact/weight"));
    c.linear_bias = from_.has("encoder/layer_0/self_attention/linear_0/bias");
    c.norm = from_.has("encoder/layer_0/ffn/layer_norm/beta")
                 ? nn::Norm::kLayerNorm
                 : nn::Norm::kRmsNorm;
    const auto has = [&](const std::string& name) { return from_.has(name); };
    c.final_norm = of_both(from_, "layer_norm/gamma", has);
    c.embedding_norm = of_both(from_, "layernorm_embedding/gamma", has);
    const bool scaled = of_both(
        from_, "scale_embeddings",
        [&](const std::string& name) { return from_.setting(name, 1) != 0; });
    if (!scaled) c.embedding_scale = 1.0f;
  }

  void read_weights() {
    nn::TransformerConfig& c = model();
    const std::string source = from_.has("encoder/embeddings_0/weight")
                                   ? "encoder/embeddings_0/weight"
                                   : "encoder/embeddings/weight";
    const std::string target = "decoder/embeddings/weight";
    const std::string output = "decoder/projection/weight";
    c.shared_embeddings = from_.same(source, target);
    c.tied_output = from_.same(output, target);
    Tensor table = from_.take(target);
    require(table.shape().size() == 2, kWhere, "embeddings must be a matrix; ",
            target, " is ", ShapeText{table.shape()});
    c.target_vocab = c.source_vocab = table.shape()[0];
    c.model_dim = table.shape()[1];
    to()[c.shared_embeddings ? "embedding.weight" : "target_embedding.weight"] =
        std::move(table);
    if (c.shared_embeddings) {
      from_.skip(source);
    } else {
      Tensor of_source = from_.take(source);
      if (!of_source.shape().empty()) c.source_vocab = of_source.shape()[0];
      to()["source_embedding.weight"] = std::move(of_source);
    }
    if (c.tied_output) {
      from_.skip(output);
    } else {
      to()["output.weight"] = from_.take(output);
    }
    c.output_bias = from_.has("decoder/projection/bias");
    if (c.output_bias) {
      to()["output.bias"] = from_.take("decoder/projection/bias");
    }
    for (const std::string side : {"encoder", "decoder"}) {
      const std::int64_t layers =
          side == "encoder" ? c.encoder_layers : c.decoder_layers;
      for (std::int64_t i = 0; i < layers; ++i) read_layer(side, i);
      if (c.final_norm) read_norm(side + "/layer_norm", side + ".norm");
      if (c.embedding_norm) {
        read_norm(side + "/layernorm_embedding", side + ".embedding_norm");
      }
    }
    read_positions();
    const auto ffn = to().find("encoder.layers.0.linear2.weight");
    if (ffn != to().end() && ffn->second.shape().size() == 2) {
      c.feed_forward_dim = ffn->second.shape()[1];
    }
  }

  // A table in the file, or sinusoids that start with 1, as OpenNMT has them.
  void read_positions() {
    nn::TransformerConfig& c = model();
    c.positions = nn::Positions::kLearned;
    const std::string name = "position_encodings/encodings";
    if (of_both(from_, name,
                [&](const std::string& full) { return from_.has(full); })) {
      to()["source_positions.weight"] = from_.take("encoder/" + name);
      to()["target_positions.weight"] = from_.take("decoder/" + name);
      const Shape& shape = to().at("source_positions.weight").shape();
      if (!shape.empty()) c.max_length = shape[0];
      return;
    }
    check_width(to(), c.model_dim);
    const double divisor =
        std::max(static_cast<double>(c.model_dim / 2 - 1), 1.0);
    to()["source_positions.weight"] =
        split_sinusoids(c.max_length, c.model_dim, 1, divisor);
    to()["target_positions.weight"] = to().at("source_positions.weight");
  }

  void read_norm(const std::string& name, const std::string& ours) {
    to()[ours + ".weight"] = from_.take(name + "/gamma");
    if (model().norm == nn::Norm::kLayerNorm) {
      to()[ours + ".bias"] = from_.take(name + "/beta");
    }
  }

  // `parts` one below the other: q, k and v, or the gate and what it gates.
  void read_linear(std::initializer_list<std::string> parts,
                   const std::string& weight, const std::string& bias) {
    std::vector<Tensor> weights, biases;
    for (const std::string& part : parts) {
      weights.push_back(from_.take(part + "/weight"));
      if (model().linear_bias) biases.push_back(from_.take(part + "/bias"));
    }
    const auto joined = [](std::vector<Tensor>& all) {
      if (all.size() == 1) return std::move(all[0]);
      return stacked({&all[0], &all[1]});
    };
    to()[weight] = joined(weights);
    if (model().linear_bias) to()[bias] = joined(biases);
  }

  void read_layer(const std::string& side, std::int64_t number) {
    const std::string name = side + "/layer_" + std::to_string(number) + "/";
    const std::string ours = side + ".layers." + std::to_string(number) + ".";
    const bool cross = side == "decoder";
    const auto read_out = [&](const std::string& from, const std::string& to) {
      read_linear({from}, to + ".weight", to + ".bias");
    };
    read_linear({name + "self_attention/linear_0"},
                ours + "self_attn.in_proj_weight",
                ours + "self_attn.in_proj_bias");
    read_out(name + "self_attention/linear_1", ours + "self_attn.out_proj");
    read_norm(name + "self_attention/layer_norm", ours + "norm1");
    if (cross) {
      read_linear({name + "attention/linear_0", name + "attention/linear_1"},
                  ours + "multihead_attn.in_proj_weight",
                  ours + "multihead_attn.in_proj_bias");
      read_out(name + "attention/linear_2", ours + "multihead_attn.out_proj");
      read_norm(name + "attention/layer_norm", ours + "norm2");
    }
    if (is_gated(model().activation)) {
      read_linear({name + "ffn/linear_0", name + "ffn/linear_0_noact"},
                  ours + "linear1.weight", ours + "linear1.bias");
    } else {
      read_out(name + "ffn/linear_0", ours + "linear1");
    }
    read_out(name + "ffn/linear_1", ours + "linear2");
    read_norm(name + "ffn/layer_norm", ours + (cross ? "norm3" : "norm2"));
  }

  std::vector<std::string> read_list(const std::string& side) const {
    for (const std::string& of : {side, std::string("shared")}) {
      const std::string name = of + "_vocabulary";
      const fs::path text = folder_ / (name + ".txt");
      if (io::is_there(text)) {
        io::check_regular(text, kWhere);
        return text::read_lines(text);
      }
      const fs::path path = folder_ / (name + ".json");
      if (!io::is_there(path)) continue;
      const auto json = Json::parse_or_null(io::read_regular(path, kWhere));
      std::vector<std::string> pieces;
      for (const auto& piece : json) {
        if (!json.is_array() || !piece.is_string()) break;
        pieces.push_back(piece.get<std::string>());
      }
      if (!json.is_array() || pieces.size() != json.size()) {
        throw_parse_error(kWhere, "'", path.string(),
                          "' must be a list of pieces");
      }
      return pieces;
    }
    throw_io_error(kWhere, "'", folder_.string(), "' has no ", side,
                   "_vocabulary and no shared_vocabulary, .txt or .json");
  }

  // The file that knows how to cut a text, or none.
  fs::path find_pieces(const char* side) const {
    const fs::path above = folder_.parent_path();
    for (const fs::path& path :
         {folder_ / (std::string(side) + ".spm"),
          folder_ / "sentencepiece.model", folder_ / "spm.model",
          above / "sentencepiece.model"}) {
      if (io::is_there(path)) return path;
    }
    for (const fs::path& path : {folder_ / "bpe.model", above / "bpe.model"}) {
      if (!io::is_there(path)) continue;
      throw_parse_error(kWhere, "'", path.string(),
                        "' is of a tokenizer that is not read; SentencePiece's "
                        "models are");
    }
    return {};
  }

  std::shared_ptr<const text::Tokenizer> tokenizer(const char* side) {
    std::vector<std::string> pieces = read_list(side);
    const auto number_of = [&](const std::string& piece) {
      const auto found = std::find(pieces.begin(), pieces.end(), piece);
      return found == pieces.end()
                 ? -1
                 : static_cast<std::int32_t>(found - pieces.begin());
    };
    if (number_of(unknown_) < 0) pieces.push_back(unknown_);
    if (number_of(end_) < 0) {
      throw_parse_error(kWhere, "the ", side, " vocabulary of '",
                        folder_.string(), "' must have the piece ",
                        io::in_quotes(end_));
    }
    const fs::path file = find_pieces(side);
    if (!file.empty()) {
      return text::renumbered(text::load_tokenizer(file), std::move(pieces),
                              unknown_);
    }
    const text::SpecialIds special{.unknown = number_of(unknown_),
                                   .begin = number_of(begin_),
                                   .end = number_of(end_)};
    return text::make_list_tokenizer(std::move(pieces), special);
  }

  void read_vocabularies() {
    const fs::path path = folder_ / "config.json";
    Json config = Json::object();
    if (io::is_there(path)) config = read_json_object(path);
    const auto text = [&](const char* key, const std::string& fallback) {
      return text_in(config, key, path, fallback);
    };
    const auto flag = [&](const char* key) {
      const Json* const found = config.find(key);
      return found != nullptr && found->is_boolean() && found->get<bool>();
    };
    const Json* const epsilon = config.find("layer_norm_epsilon");
    if (epsilon != nullptr && epsilon->is_number()) {
      model().norm_epsilon = epsilon->get<float>();
    }
    unknown_ = text("unk_token", "<unk>");
    begin_ = text("bos_token", "<s>");
    end_ = text("eos_token", "</s>");
    result_.source = tokenizer("source");
    result_.target = tokenizer("target");
    TranslatorTokens& tokens = result_.tokens;
    tokens.never.clear();
    tokens.end = result_.target->id_of(end_);
    tokens.source_end = flag("add_source_eos");
    if (flag("add_source_bos")) {
      tokens.source_begin = result_.source->id_of(begin_);
    }
    const std::string start = text("decoder_start_token", begin_);
    tokens.begin =
        zero_start_ ? nn::kZeroEmbedding : result_.target->id_of(start);
    const fs::path names = folder_.parent_path() / "metadata.json";
    if (folder_.filename() == "model" && io::is_there(names)) {
      const Json json = read_json_object(names);
      result_.config.languages.source =
          text_in(json, "from_code", names, "source");
      result_.config.languages.target =
          text_in(json, "to_code", names, "target");
    }
  }

  StateDict& to() { return result_.weights; }

  fs::path folder_;
  Variables from_;
  ImportedTranslator result_;
  bool zero_start_ = from_.setting("decoder/start_from_zero_embedding", 0) != 0;
  std::string unknown_, begin_, end_;
};

}  // namespace

fs::path find_ctranslate2(const fs::path& folder) {
  std::error_code error;
  for (const fs::path& at : {folder, folder / "model"}) {
    if (fs::exists(at / kModelFile, error)) return fs::weakly_canonical(at);
  }
  return {};
}

ImportedTranslator load_ctranslate2(const fs::path& folder) {
  return Importer(find_ctranslate2(folder)).run();
}

}  // namespace regard::tasks
