// SPDX-License-Identifier: Apache-2.0
// A model as it lies on the disk: config.json, model.safetensors, and the
// tokenizer's file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "json/json.h"
#include "regard/core/error.h"
#include "regard/nn/encoder.h"
#include "regard/ops/weight_storage.h"
#include "regard/tensor/tensor.h"
#include "regard/text/tokenizer.h"
#include "text/field.h"

namespace regard::tasks {

// A layer has a dozen parameters, each with a name: more of them are refused
// before any name is made.
inline constexpr std::int64_t kMostOwnLayers = 1024;

struct ModelFolder {
  std::string config_name;  // the file, for errors
  Json config;
  std::unique_ptr<text::Tokenizer> tokenizer;  // null where not asked for
  StateDict weights;                           // float32
  ops::WeightStorage stored{};                 // what its file has

  // The type that they get; see weights_for().
  ops::WeightStorage weights_as(ops::WeightStorage asked,
                                const char* where) const;
  text::Field field() const { return {config, config_name}; }
};

// Throws IoError for a file that is missing, ParseError for one that is broken
// or of another `kind`; `where` begins each text.
ModelFolder load_model_folder(const std::filesystem::path& folder,
                              const char* kind, const char* where);

// The same for a model that reads no text and has no tokenizer.
ModelFolder load_model_without_tokenizer(const std::filesystem::path& folder,
                                         const char* kind, const char* where);

// make(), a model of what was read. What it refuses with InvalidArgument does
// not fit together: ParseError.
template <typename Make>
auto fitted(const std::filesystem::path& folder, const char* where,
            const Make& make) {
  try {
    return make();
  } catch (const InvalidArgument& error) {
    throw_parse_error(where, "the files of '", folder.string(),
                      "' do not fit each other: ", error.what());
  }
}

// Writes all, each file whole or not at all, the weights last. `config` has the
// kind. `stored` is kFloat32 or kFloat16.
void save_model_folder(const std::filesystem::path& folder, const Json& config,
                       const text::Tokenizer& tokenizer,
                       const StateDict& weights, DType stored);
void save_model_folder(const std::filesystem::path& folder, const Json& config,
                       const StateDict& weights, DType stored);

Json to_json(const nn::EncoderConfig& config);
nn::EncoderConfig encoder_from(const text::Field& field);

}  // namespace regard::tasks
