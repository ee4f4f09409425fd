// SPDX-License-Identifier: Apache-2.0
// A language model and its tokenizer, from whatever file or folder is named.
#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "io/read_file.h"
#include "regard/core/error.h"
#include "regard/tasks/language_model.h"
#include "tasks/language_files.h"

namespace regard::tasks {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhere = "load_language_model";

// A file of llama2.c begins with seven sizes and nothing that names it. Other
// files have numbers there that are the size of nothing. What cannot be read at
// all is left to whoever says why.
bool may_be_llama2c(const fs::path& path) {
  constexpr std::int32_t kLargest = 1 << 24;
  constexpr std::array<char, 4> kVersion1 = {'2', '4', 'k', 'a'};
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return true;
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

void check_vocabulary(const LoadedModel& loaded) {
  const std::int64_t pieces = loaded.tokenizer->size();
  const std::int64_t known = loaded.model.config().vocab;
  if (pieces != known) {
    throw_parse_error(kWhere, "the tokenizer has ", pieces,
                      " pieces, the model knows ", known);
  }
}

void add_stop(LoadedModel& loaded, std::int64_t token) {
  if (token >= 0 && token < loaded.model.config().vocab) {
    loaded.stop_tokens.push_back(static_cast<std::int32_t>(token));
  }
}

LoadedModel load_gguf(const fs::path& path,
                      const std::optional<fs::path>& tokenizer,
                      ops::WeightStorage weights) {
  const GgufFile file = GgufFile::open(path);
  LoadedModel loaded{LanguageModel::from_gguf(file, weights),
                     tokenizer ? text::load_tokenizer(*tokenizer)
                               : text::load_tokenizer(file)};
  check_vocabulary(loaded);
  add_stop(loaded, loaded.tokenizer->special().end);
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    add_stop(loaded, file.integer(key).value_or(-1));
  }
  loaded.chat_template = file.text("tokenizer.chat_template").value_or("");
  return loaded;
}

LoadedModel load_folder(const fs::path& folder,
                        const std::optional<fs::path>& tokenizer,
                        ops::WeightStorage weights) {
  LoadedModel loaded{LanguageModel::from_folder(folder, weights),
                     text::load_tokenizer(tokenizer.value_or(folder)),
                     folder_stop_tokens(folder), folder_chat_template(folder)};
  if (loaded.stop_tokens.empty()) {
    add_stop(loaded, loaded.tokenizer->special().end);
  }
  return loaded;
}

LoadedModel load_llama2c(const fs::path& path,
                         const std::optional<fs::path>& tokenizer,
                         ops::WeightStorage weights) {
  if (!may_be_llama2c(path)) {
    throw_parse_error(kWhere, "'", path.string(),
                      "' is no language model: it is neither GGUF nor a model "
                      "of llama2.c");
  }
  const Llama2cFile file = Llama2cFile::open(path);
  if (!tokenizer) {
    throw InvalidArgument(std::string(kWhere) + ": '" + path.string() +
                          "' has no tokenizer inside; a file for it is needed");
  }
  LoadedModel loaded{LanguageModel::from_llama2c(file, weights),
                     text::load_tokenizer(*tokenizer)};
  check_vocabulary(loaded);
  // The model was trained on texts one after the other: begin ends one, too.
  add_stop(loaded, loaded.tokenizer->special().begin);
  add_stop(loaded, loaded.tokenizer->special().end);
  return loaded;
}

}  // namespace

LanguageModel LanguageModel::from_llama2c(const Llama2cFile& file,
                                          ops::WeightStorage weights) {
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
  c.tied_output = s.tied_output;
  return LanguageModel(c, file.parameters(), weights);
}

LoadedModel load_language_model(const fs::path& model,
                                const std::optional<fs::path>& tokenizer,
                                ops::WeightStorage weights) {
  std::error_code error;
  if (fs::is_directory(model, error)) {
    return load_folder(model, tokenizer, weights);
  }
  const bool is_gguf = io::read_start(model, 4, kWhere) == "GGUF";
  return is_gguf ? load_gguf(model, tokenizer, weights)
                 : load_llama2c(model, tokenizer, weights);
}

}  // namespace regard::tasks
