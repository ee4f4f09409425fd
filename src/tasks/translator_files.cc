// SPDX-License-Identifier: Apache-2.0
// The files of a translator that was trained here.
#include <algorithm>
#include <system_error>
#include <utility>

#include "io/atomic_file.h"
#include "io/read_file.h"
#include "regard/core/error.h"
#include "regard/core/float16.h"
#include "regard/io/safetensors.h"
#include "regard/tasks/translator.h"
#include "tasks/rounded_state.h"

namespace regard::tasks {
namespace fs = std::filesystem;

namespace {

constexpr const char* kConfigFile = "config.json";
constexpr const char* kWeightsFile = "model.safetensors";

Tensor to_float32(Tensor tensor, const std::string& name) {
  if (tensor.dtype() == DType::kFloat32) return tensor;
  if (tensor.dtype() != DType::kFloat16) {
    throw_parse_error("Translator::load",
                      "weights must be float32 or float16; ", name, " is ",
                      to_string(tensor.dtype()));
  }
  Tensor wide(tensor.shape());
  const auto from = tensor.values<Float16>();
  const auto to = wide.values<float>();
  std::transform(from.begin(), from.end(), to.begin(),
                 [](Float16 value) { return static_cast<float>(value); });
  return wide;
}

Tensor to_float16(const Tensor& tensor) {
  Tensor narrow(DType::kFloat16, tensor.shape());
  const auto from = tensor.values<float>();
  const auto to = narrow.values<Float16>();
  std::transform(from.begin(), from.end(), to.begin(),
                 [](float value) { return Float16(value); });
  return narrow;
}

// What a folder that is no model is, or may have been meant to be.
void check_is_model(const fs::path& folder, const fs::path& config) {
  constexpr const char* kWhere = "Translator::load";
  std::error_code error;
  std::string name = "'";
  name += folder.string();
  name += "'";
  if (!fs::exists(folder, error)) {
    throw_io_error(kWhere, name, " is not there; a model is a folder");
  }
  if (!fs::is_directory(folder, error)) {
    throw_parse_error(kWhere, name,
                      " is a file and no model: a model is a folder with ",
                      kConfigFile, ", ", kWeightsFile, " and a tokenizer");
  }
  if (fs::exists(config, error)) return;
  if (fs::exists(folder / "training", error)) {
    throw_parse_error(kWhere, name,
                      " holds an unfinished training and no model yet; the "
                      "command that began it goes on with --resume");
  }
  throw_parse_error(kWhere, name, " is no model: it has no ", kConfigFile);
}

}  // namespace

TranslatorFiles load_translator_files(const fs::path& folder) {
  const fs::path config_path = folder / kConfigFile;
  check_is_model(folder, config_path);
  TranslatorFiles files;
  files.config = config_from_json(
      io::read_regular(config_path, "Translator::load"), config_path.string());
  files.tokenizer = text::load_tokenizer(folder);
  if (!has_first_pieces(*files.tokenizer)) {
    const text::SpecialIds special = files.tokenizer->special();
    throw_parse_error("Translator::load", "the first pieces of '",
                      folder.string(),
                      "' must be <unk>, <s>, </s>; they have the numbers ",
                      special.unknown, ", ", special.begin, ", ", special.end);
  }
  files.weights = SafetensorsFile::open(folder / kWeightsFile).state_dict();
  widen_codes(files.weights, "Translator::load");
  for (auto& [name, tensor] : files.weights) {
    tensor = to_float32(std::move(tensor), name);
  }
  return files;
}

void save_translator(const fs::path& folder, const TranslatorConfig& config,
                     const text::Tokenizer& tokenizer, const StateDict& weights,
                     DType stored) {
  require(stored == DType::kFloat32 || stored == DType::kFloat16,
          "save_translator", "weights are stored as float32 or float16; got ",
          to_string(stored));
  tokenizer.save(folder);
  io::AtomicFile file(folder / kConfigFile, "save_translator");
  file.write(config_to_json(config));
  file.commit();
  if (stored == DType::kFloat32) {
    save_safetensors(folder / kWeightsFile, weights);
    return;
  }
  StateDict narrow;
  for (const auto& [name, tensor] : weights) {
    narrow.emplace(name, to_float16(tensor));
  }
  save_safetensors(folder / kWeightsFile, narrow);
}

}  // namespace regard::tasks
