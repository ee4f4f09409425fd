// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/model_kind.h"

#include <string>
#include <system_error>

#include "io/read_file.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/tasks/text_encoder.h"
#include "tasks/imported_translator.h"
#include "tasks/language_files.h"
#include "text/field.h"
#include "text/tokenizers.h"

namespace regard::tasks {

namespace fs = std::filesystem;

ModelKind find_model_kind(const fs::path& path) {
  constexpr const char* kWhere = "find_model_kind";
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw_io_error(kWhere, "'", path.string(),
                   "' is not there; a model is a folder or a file in GGUF");
  }
  if (!fs::is_directory(path, error)) return ModelKind::kLanguageModel;
  if (is_text_encoder(path)) return ModelKind::kTextEncoder;
  if (!find_ctranslate2(path).empty()) return ModelKind::kTranslator;
  const fs::path config = path / "config.json";
  if (!fs::exists(config, error)) {
    throw_parse_error(kWhere, "'", path.string(),
                      "' is no model: it has neither config.json nor "
                      "modules.json nor the model.bin of CTranslate2");
  }
  const std::string where = std::string(kWhere) + ": '" + config.string() + "'";
  const auto json = text::parse_json(io::read_regular(config, kWhere), where);
  const text::Field file(json, where);
  const std::string kind = file.text("kind", "");
  if (kind == kTranslatorKind || kind == kSummarizerKind)
    return ModelKind::kTranslator;
  const std::string type = file.text("model_type", "");
  if (is_decoder_type(type)) return ModelKind::kLanguageModel;
  if (is_translator_type(type)) return ModelKind::kTranslator;
  file.fail(
      "names no model that is read: the kind is ", io::in_quotes(kind),
      ", the model_type ", io::in_quotes(type),
      "; read are encoders (bert, roberta, xlm-roberta, camembert, "
      "distilbert, mpnet, albert), "
      "language models (llama, mistral, qwen2, qwen3, gemma, gemma2, "
      "gemma3_text, phi3, gpt2) and translators (marian, bart, t5, mt5, '",
      kTranslatorKind, "', '", kSummarizerKind, "')");
}

}  // namespace regard::tasks
