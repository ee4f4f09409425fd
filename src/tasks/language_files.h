// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "regard/tasks/language_model.h"
#include "tasks/parameter_source.h"

namespace regard::tasks {

// Absurd settings are refused before anything of their size is made.
inline constexpr std::int64_t kMostModelSize = std::int64_t{1} << 31;
inline constexpr std::int64_t kMostLayers = 1 << 16;

// A model that the file's numbers do not make is the file's fault: ParseError
// that begins with `where`.
LanguageModel model_from(const std::string& where,
                         const LanguageModelConfig& config,
                         const ParameterSource& source,
                         ops::WeightStorage storage);

// Is this model_type of config.json one that is read?
bool is_decoder_type(const std::string& type);

// config.json of a Hugging Face folder. Throws ParseError for a type of model,
// an activation or a RoPE scaling that is not read, and for fields that are
// missing or absurd: the text begins with `where` and names the field.
LanguageModelConfig parse_hugging_face_config(const std::string& text,
                                              const std::string& where);

// Hugging Face's name of a parameter, of this type of model, without the prefix
// that only some files have; empty where it has no such parameter.
std::string hugging_face_name(const std::string& model_type,
                              const std::string& name);

// What the files beside config.json say: which tokens end a text, and how a
// chat is written. Both empty where they say nothing.
std::vector<std::int32_t> folder_stop_tokens(
    const std::filesystem::path& folder);
std::string folder_chat_template(const std::filesystem::path& folder);

}  // namespace regard::tasks
