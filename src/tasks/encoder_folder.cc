// SPDX-License-Identifier: Apache-2.0
// What sentence-transformers adds to a model, and where a folder has it.
#include <algorithm>
#include <array>
#include <exception>
#include <system_error>
#include <utility>

#include "io/read_file.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "tasks/encoder_config.h"
#include "text/tokenizers.h"

namespace regard::tasks {
namespace {

namespace fs = std::filesystem;
using text::Field;

constexpr const char* kWhere = "TextEncoder::load";

// A folder inside the model's, by its plain name.
std::string folder_in(const Field& module) {
  const std::string path = module.text("path", "");
  const fs::path part(path);
  const bool plain = part.is_relative() &&
                     std::none_of(part.begin(), part.end(),
                                  [](const auto& p) { return p == ".."; });
  if (!plain) module["path"].expect("a folder inside the model's");
  return path;
}

constexpr std::array<std::pair<const char*, Pooling>, 6> kPoolings = {{
    {"cls", Pooling::kCls},
    {"max", Pooling::kMax},
    {"mean", Pooling::kMean},
    {"mean_sqrt_len_tokens", Pooling::kMeanSqrtLen},
    {"weightedmean", Pooling::kWeightedMean},
    {"lasttoken", Pooling::kLastToken},
}};
// In the order in which several of them stand side by side.
constexpr std::array<const char*, 6> kPoolingFlags = {
    "pooling_mode_cls_token",           "pooling_mode_max_tokens",
    "pooling_mode_mean_tokens",         "pooling_mode_mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"};

Pooling pooling_named(const Field& name) {
  for (const auto& [known, pooling] : kPoolings) {
    if (name.text() == known) return pooling;
  }
  name.fail(
      "must be cls, max, mean, mean_sqrt_len_tokens, weightedmean or "
      "lasttoken; it is ",
      io::in_quotes(name.text()));
}

std::string where_of(const fs::path& path) {
  return std::string(kWhere) + ": '" + path.string() + "'";
}

// read(text of the file, how its errors start), where the file is there.
template <typename Read>
void if_there(const fs::path& path, const Read& read) {
  if (io::is_there(path)) read(io::read_regular(path, kWhere), where_of(path));
}

void check_is_folder(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) {
    throw_io_error(kWhere, "'", folder.string(),
                   "' is not there; a model is a folder");
  }
  if (!fs::is_directory(folder, error)) {
    throw_parse_error(kWhere, "'", folder.string(),
                      "' is a file and no model: a model is a folder with "
                      "config.json, model.safetensors and a tokenizer");
  }
}

// Says what to do about weights in another format.
fs::path weights_in(const fs::path& folder) {
  const fs::path weights = folder / "model.safetensors";
  if (io::is_there(weights)) return weights;
  const std::string where = where_of(folder);
  if (io::is_there(folder / "model.safetensors.index.json")) {
    throw_parse_error(where.c_str(),
                      "the weights are in several files; save the model as one "
                      "with transformers' save_pretrained(folder, "
                      "max_shard_size='100GB')");
  }
  if (io::is_there(folder / "pytorch_model.bin")) {
    throw_parse_error(
        where.c_str(),
        "there is pytorch_model.bin and no model.safetensors; make one with "
        "transformers: AutoModel.from_pretrained(folder)"
        ".save_pretrained(folder)");
  }
  for (const char* name : {"model.onnx", "onnx/model.onnx"}) {
    if (!io::is_there(folder / name)) continue;
    throw_parse_error(where.c_str(), "there is ", name,
                      " and no model.safetensors; the same model in "
                      "safetensors is what is needed, as Hugging Face has it "
                      "beside the ONNX file");
  }
  throw_io_error(where.c_str(), "there is no model.safetensors");
}

}  // namespace

std::string_view pooling_name(Pooling pooling) {
  return kPoolings[static_cast<std::size_t>(pooling)].first;
}

SentenceModules parse_modules(const std::string& json,
                              const std::string& where) {
  const auto root = text::parse_json(json, where);
  SentenceModules modules;
  int place = 0;  // modules come in this order
  Field(root, where).for_each([&](const Field& module) {
    const std::string type = module["type"].text();
    const std::string name = type.substr(type.rfind('.') + 1);
    const auto comes = [&](int at) {
      if (place >= at) {
        module["type"].fail(
            "comes out of order: a Transformer is followed by a Pooling and a "
            "Normalize");
      }
      place = at;
    };
    if (name == "Transformer") {
      comes(1);
      modules.transformer = folder_in(module);
    } else if (name == "Pooling") {
      comes(2);
      modules.pooling = folder_in(module);
      modules.has_pooling = true;
    } else if (name == "Normalize") {
      comes(3);
      modules.normalize = true;
    } else {
      module["type"].fail(
          "is a module that is not known: ", io::in_quotes(name),
          "; Transformer, Pooling and Normalize are");
    }
  });
  return modules;
}

std::vector<Pooling> parse_pooling(const std::string& json,
                                   const std::string& where) {
  const auto root = text::parse_json(json, where);
  const Field file(root, where);
  if (!file.flag("include_prompt", true)) {
    file["include_prompt"].fail("must be true: a prompt is pooled, too");
  }
  std::vector<Pooling> poolings;
  if (file.has("pooling_mode")) {
    const Field mode = file["pooling_mode"];
    if (mode.is_array()) {
      mode.for_each([&](const Field& one) {
        if (poolings.size() == kPoolings.size()) {
          mode.fail("must name each pooling once");
        }
        poolings.push_back(pooling_named(one));
      });
    } else {
      poolings.push_back(pooling_named(mode));
    }
  } else {
    for (std::size_t i = 0; i < kPoolingFlags.size(); ++i) {
      if (file.flag(kPoolingFlags[i], false)) {
        poolings.push_back(kPoolings[i].second);
      }
    }
    for (const std::string& key : file.keys()) {
      const bool known = std::find(kPoolingFlags.begin(), kPoolingFlags.end(),
                                   key) != kPoolingFlags.end();
      if (!key.starts_with("pooling_mode_") || known) continue;
      if (file.flag(key.c_str(), false)) {
        file[key.c_str()].fail("is a pooling that is not known");
      }
    }
  }
  if (poolings.empty()) poolings.push_back(Pooling::kMean);
  return poolings;
}

void parse_sentence_config(const std::string& json, const std::string& where,
                           TextEncoderConfig& config) {
  const auto root = text::parse_json(json, where);
  const Field file(root, where);
  if (file.has("max_seq_length")) {
    config.max_length =
        std::min(config.max_length,
                 size_in(file, "max_seq_length", std::int64_t{1} << 62));
  }
  config.lower_case = file.flag("do_lower_case", false);
}

void parse_prompts(const std::string& json, const std::string& where,
                   TextEncoderConfig& config) {
  const auto root = text::parse_json(json, where);
  const Field file(root, where);
  if (file.has("prompts")) {
    const Field prompts = file["prompts"];
    for (const std::string& name : prompts.keys()) {
      config.prompts[name] = prompts.text(name.c_str(), "");
    }
  }
  config.default_prompt = file.text("default_prompt_name", "");
  if (!config.default_prompt.empty() &&
      !config.prompts.contains(config.default_prompt)) {
    file["default_prompt_name"].fail("must name one of the prompts; it is ",
                                     io::in_quotes(config.default_prompt));
  }
}

bool is_text_encoder(const fs::path& folder) {
  try {
    // A folder of sentence-transformers, or of transformers.
    if (io::is_there(folder / "modules.json")) return true;
    const fs::path path = folder / "config.json";
    if (!io::is_there(path)) return false;
    const auto root = text::parse_json(io::read_regular(path, kWhere), kWhere);
    const std::string type = Field(root, kWhere).text("model_type", "");
    return is_encoder_type(type);
  } catch (const std::exception&) {
    return false;
  }
}

EncoderFolder read_encoder_folder(const fs::path& folder) {
  check_is_folder(folder);
  SentenceModules modules;
  if_there(folder / "modules.json", [&](const auto& json, const auto& where) {
    modules = parse_modules(json, where);
  });
  EncoderFolder found;
  found.tokenizer =
      modules.transformer.empty() ? folder : folder / modules.transformer;
  const fs::path config_file = found.tokenizer / "config.json";
  if (!io::is_there(config_file)) {
    throw_io_error(kWhere, "'", found.tokenizer.string(),
                   "' is no model: it has no config.json");
  }
  found.settings = parse_encoder_config(io::read_regular(config_file, kWhere),
                                        where_of(config_file));
  TextEncoderConfig& config = found.settings.config;
  config.normalize = modules.normalize;
  if (modules.has_pooling) {
    const fs::path path = folder / modules.pooling / "config.json";
    config.pooling =
        parse_pooling(io::read_regular(path, kWhere), where_of(path));
  }
  const auto read = [&](const fs::path& path, const auto& parse) {
    if_there(path, [&](const auto& json, const auto& where) {
      parse(json, where, config);
    });
  };
  read(found.tokenizer / "sentence_bert_config.json", parse_sentence_config);
  read(folder / "config_sentence_transformers.json", parse_prompts);
  if_there(found.tokenizer / "tokenizer_config.json",
           [&](const auto& json, const auto& where) {
             const auto root = text::parse_json(json, where);
             const Field file(root, where);
             if (!file.has("model_max_length")) return;
             // Without a limit it is about 1e30.
             const double most = file["model_max_length"].real();
             if (!(most >= 1)) {
               file["model_max_length"].expect("a number from 1 on");
             }
             if (most < static_cast<double>(config.max_length)) {
               config.max_length = static_cast<std::int64_t>(most);
             }
           });
  found.weights = weights_in(found.tokenizer);
  return found;
}

std::unique_ptr<text::Tokenizer> load_encoder_tokenizer(
    const EncoderFolder& folder) {
  const TextEncoderConfig& config = folder.settings.config;
  auto tokenizer = text::load_tokenizer(folder.tokenizer);
  // Tables are often longer than the vocabulary, never shorter.
  if (tokenizer->size() > config.vocab) {
    throw_parse_error(kWhere, "'", folder.tokenizer.string(),
                      "': the tokenizer has ", tokenizer->size(),
                      " pieces, the model knows ", config.vocab);
  }
  const std::int64_t special = std::ssize(tokenizer->encode("", {}).ids);
  if (config.max_length <= special) {
    throw_parse_error(kWhere, "'", folder.tokenizer.string(),
                      "': texts of at most ", config.max_length,
                      " tokens leave no room beside the ", special,
                      " special ones");
  }
  return tokenizer;
}

}  // namespace regard::tasks
