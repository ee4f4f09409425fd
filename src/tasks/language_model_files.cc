// SPDX-License-Identifier: Apache-2.0
// Language models from the files of others.
#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "io/quote.h"
#include "io/read_file.h"
#include "regard/core/error.h"
#include "regard/tasks/language_model.h"

namespace regard::tasks {
namespace {

// Absurd settings are refused before anything of their size is made.
constexpr std::int64_t kMostSize = std::int64_t{1} << 31;

// The settings of a llama in GGUF, checked as they are read.
class LlamaSettings {
 public:
  explicit LlamaSettings(const GgufFile& file) : file_(file) {}

  const char* where() const { return file_.where().c_str(); }

  std::int64_t size(const std::string& name) const {
    const std::string key = "llama." + name;
    const auto value = file_.integer(key);
    if (!value) throw_parse_error(where(), "the setting ", key, " is missing");
    return checked(key, *value);
  }
  std::int64_t size(const std::string& name, std::int64_t otherwise) const {
    const std::string key = "llama." + name;
    return checked(key, file_.integer(key).value_or(otherwise));
  }
  double real(const std::string& name, double otherwise) const {
    return file_.real("llama." + name).value_or(otherwise);
  }

 private:
  std::int64_t checked(const std::string& key, std::int64_t value) const {
    if (value <= 0 || value > kMostSize) {
      throw_parse_error(where(), key, " must be 1 to ", kMostSize, "; it is ",
                        value);
    }
    return value;
  }

  const GgufFile& file_;
};

nn::RotaryConfig rotary_of(const GgufFile& file, const LlamaSettings& settings,
                           std::int64_t head_dim) {
  nn::RotaryConfig rotary;
  rotary.rotary_dim = settings.size("rope.dimension_count", head_dim);
  rotary.base = settings.real("rope.freq_base", rotary.base);
  const auto type = file.text("llama.rope.scaling.type").value_or("none");
  if (type == "none") return rotary;
  if (type == "linear") {
    rotary.scaling = nn::RotaryScaling::kLinear;
  } else if (type == "yarn") {
    rotary.scaling = nn::RotaryScaling::kYarn;
    rotary.trained_length =
        settings.size("rope.scaling.original_context_length");
    rotary.attention_factor =
        settings.real("rope.scaling.attn_factor", rotary.attention_factor);
  } else {
    throw_parse_error(settings.where(),
                      "llama.rope.scaling.type must be none, linear or yarn; "
                      "it is ",
                      io::in_quotes(type));
  }
  rotary.factor = settings.real("rope.scaling.factor", rotary.factor);
  return rotary;
}

void check_architecture(const GgufFile& file) {
  const auto architecture = file.text("general.architecture");
  if (!architecture) {
    throw_parse_error(file.where().c_str(),
                      "the setting general.architecture is missing");
  }
  if (*architecture != "llama") {
    throw_parse_error(file.where().c_str(),
                      "only models of the architecture 'llama' are read; this "
                      "is ",
                      io::in_quotes(*architecture));
  }
}

LanguageModelConfig config_of(const GgufFile& file) {
  const LlamaSettings settings(file);
  LanguageModelConfig c;
  c.model_dim = settings.size("embedding_length");
  c.layers = settings.size("block_count");
  c.heads = settings.size("attention.head_count");
  c.kv_heads = settings.size("attention.head_count_kv", c.heads);
  c.feed_forward_dim = settings.size("feed_forward_length");
  c.context = settings.size("context_length");
  c.norm_epsilon = static_cast<float>(
      settings.real("attention.layer_norm_rms_epsilon", c.norm_epsilon));
  if (c.model_dim % c.heads != 0 &&
      !file.integer("llama.attention.key_length")) {
    throw_parse_error(settings.where(), "heads must divide model_dim; ",
                      c.heads, " and ", c.model_dim, " came");
  }
  const std::int64_t head_dim = c.model_dim / c.heads;
  c.head_dim = settings.size("attention.key_length", head_dim);
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
  c.rotary = rotary_of(file, settings, c.head_dim);
  return c;
}

// A model that the file's numbers do not make is the file's fault.
LanguageModel model_from(const std::string& where,
                         const LanguageModelConfig& config,
                         const ParameterViews& parameters) {
  try {
    return LanguageModel(config, parameters);
  } catch (const InvalidArgument& error) {
    throw_parse_error(where.c_str(), error.what());
  }
}

// A file of llama2.c begins with seven sizes and nothing that names it. Other
// files have numbers there that are the size of nothing. What cannot be read at
// all is left to whoever says why.
bool may_be_llama2c(const std::filesystem::path& path) {
  constexpr std::int32_t kLargest = 1 << 24;
  constexpr std::array<char, 4> kVersion1 = {'2', '4', 'k', 'a'};
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return true;
  std::array<std::int32_t, 7> sizes{};
  std::ifstream file(path, std::ios::binary);
  if (!file) return true;
  file.read(reinterpret_cast<char*>(sizes.data()), sizeof(sizes));
  if (file.gcount() != sizeof(sizes)) return false;
  if (std::memcmp(sizes.data(), kVersion1.data(), 4) == 0) return true;
  return std::all_of(sizes.begin(), sizes.end(), [](std::int32_t size) {
    return size != 0 && size >= -kLargest && size <= kLargest;
  });
}

text::BytePairTokenizer load_tokenizer(const std::filesystem::path& path) {
  constexpr const char* kWhere = "load_language_model";
  const std::string bytes = io::read_file(path, kWhere);
  try {
    return text::BytePairTokenizer::parse_llama2c(
        std::as_bytes(std::span(bytes)));
  } catch (const ParseError& error) {
    throw_parse_error(kWhere, "'", path.string(),
                      "' is no tokenizer of llama2.c: ", error.what());
  }
}

}  // namespace

LanguageModel LanguageModel::from_llama2c(const Llama2cFile& file) {
  const Llama2cFile::Sizes& s = file.sizes();
  LanguageModelConfig c;
  c.vocab = s.vocab;
  c.model_dim = s.model_dim;
  c.layers = s.layers;
  c.heads = s.heads;
  c.kv_heads = s.kv_heads;
  c.head_dim = s.head_dim();
  c.feed_forward_dim = s.feed_forward_dim;
  c.context = s.context;
  c.rotary.rotary_dim = c.head_dim;
  return LanguageModel(c, file.parameters());
}

LanguageModel LanguageModel::from_gguf(const GgufFile& file) {
  check_architecture(file);
  const LanguageModelConfig config = config_of(file);
  ParameterViews parameters;
  for (const std::string& name : file.names()) {
    const Shape& shape = file.shape(name);
    if (shape.empty() || shape.size() > 2) {
      throw_parse_error(file.where().c_str(), io::in_quotes(name),
                        " must be a vector or a matrix; its shape is ",
                        to_string(shape));
    }
    parameters[name] = {file.values(name).data(),
                        {shape.size() == 2 ? shape[0] : 1, shape.back()}};
  }
  return model_from(file.where(), config, parameters);
}

LoadedModel load_language_model(
    const std::filesystem::path& model,
    const std::optional<std::filesystem::path>& tokenizer) {
  constexpr const char* kWhere = "load_language_model";
  std::array<char, 4> start{};
  std::ifstream(model, std::ios::binary).read(start.data(), start.size());
  const bool is_gguf = std::string_view(start.data(), start.size()) == "GGUF";
  const auto checked = [&](LanguageModel&& read,
                           text::BytePairTokenizer&& pieces) {
    if (pieces.size() != read.config().vocab) {
      throw_parse_error(kWhere, "the tokenizer has ", pieces.size(),
                        " pieces, the model knows ", read.config().vocab);
    }
    return LoadedModel{std::move(read), std::move(pieces)};
  };
  if (is_gguf) {
    const GgufFile file = GgufFile::open(model);
    return checked(LanguageModel::from_gguf(file),
                   tokenizer ? load_tokenizer(*tokenizer)
                             : text::BytePairTokenizer::from_gguf(file));
  }
  if (!may_be_llama2c(model)) {
    throw_parse_error(kWhere, "'", model.string(),
                      "' is no language model: it is neither GGUF nor a model "
                      "of llama2.c");
  }
  const Llama2cFile file = Llama2cFile::open(model);
  if (!tokenizer) {
    throw InvalidArgument(std::string(kWhere) + ": '" + model.string() +
                          "' has no tokenizer inside; a file for it is needed");
  }
  return checked(LanguageModel::from_llama2c(file), load_tokenizer(*tokenizer));
}

}  // namespace regard::tasks
