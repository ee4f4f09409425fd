// SPDX-License-Identifier: Apache-2.0
// Translators that were trained elsewhere, under the names that ours have.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "regard/tasks/translator.h"
#include "regard/tensor/tensor.h"
#include "regard/text/tokenizer.h"

namespace regard::tasks {

// What config.json says of a translator that was trained here.
inline constexpr const char* kTranslatorKind = "regard translator";
inline constexpr const char* kSummarizerKind = "regard summarizer";

// The numbers that a search must know.
struct TranslatorTokens {
  std::int32_t begin = text::kBegin;  // what the decoder reads first
  std::int32_t end = text::kEnd;
  std::int32_t first = -1;         // what it must say first; -1: anything
  std::int32_t source_begin = -1;  // before each source; -1: nothing
  bool source_end = true;          // `end` of the source's side behind it
  // The lines of a source are encoded one by one, with the end between them.
  bool by_lines = false;
  // What is never said; an unknown piece may be where it stands for something.
  std::vector<std::int32_t> never = {text::kUnknown};
};

struct ImportedTranslator {
  TranslatorConfig config;
  TranslatorTokens tokens;
  std::shared_ptr<const text::Tokenizer> source, target;
  StateDict weights;
};

// Where the folder's CTranslate2 model is: itself, or its folder `model`; empty
// where there is none.
std::filesystem::path find_ctranslate2(const std::filesystem::path& folder);
ImportedTranslator load_ctranslate2(const std::filesystem::path& folder);

// Is this model_type of config.json one that is read?
bool is_translator_type(const std::string& type);
// `config` is the text of its config.json.
bool is_hugging_face(const std::string& config);
ImportedTranslator load_hugging_face(const std::filesystem::path& folder);

// Sinusoids are computed and take memory that no file has: first the weights
// must be those of a model that is `dim` wide. Throws InvalidArgument.
void check_width(const StateDict& weights, std::int64_t dim);

// [places, dim]: all sines, then all cosines, of (place + first) / 10000^(i /
// divisor) for i in [0, dim / 2).
Tensor split_sinusoids(std::int64_t places, std::int64_t dim,
                       std::int64_t first, double divisor);

}  // namespace regard::tasks
