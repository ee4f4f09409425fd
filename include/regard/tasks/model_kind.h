// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace regard::tasks {

enum class ModelKind {
  kTextEncoder,    // for TextEncoder::load
  kLanguageModel,  // for load_language_model
  kTranslator,     // for Translator::load
};

// What a path holds, by the files that are there and by the kind or model_type
// that config.json names; weights and tokenizers are not looked at. A file is a
// language model. Throws IoError where nothing is there, and ParseError for a
// folder of none of these: the text says what was looked for.
ModelKind find_model_kind(const std::filesystem::path& path);

}  // namespace regard::tasks
