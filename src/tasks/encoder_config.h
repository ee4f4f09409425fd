// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "regard/ops/activation.h"
#include "regard/tasks/text_encoder.h"
#include "text/field.h"

// What the JSON files of a pretrained encoder say, checked.
namespace regard::tasks {

enum class EncoderFamily { kBert, kRoberta, kDistilBert, kMpnet, kAlbert };

struct EncoderSettings {
  TextEncoderConfig config;
  EncoderFamily family = EncoderFamily::kBert;
  ops::Activation activation = ops::Activation::kGelu;
  float norm_epsilon = 1e-12f;
  std::int64_t positions = 0;       // rows of the table
  std::int64_t first_position = 0;  // the row of a text's first token
  // The piece that has no place of its own, but the row before the first; -1:
  // there is none.
  std::int32_t padding = -1;
  std::int64_t types = 0;          // rows of the table; 0: there is none
  std::int64_t embedding_dim = 0;  // of a token, before it is projected
  std::int64_t groups = 1;         // ALBERT: layers that share their weights,
  std::int64_t inner_layers = 1;   // and how many a group has in a row
  std::int64_t buckets = 0;        // MPNet: of relative positions
};

// An integer from 1 to `most`, which is refused before anything of its size is
// made.
inline constexpr std::int64_t kMostSize = std::int64_t{1} << 24;
std::int64_t size_in(const text::Field& file, const char* key,
                     std::int64_t most = kMostSize);

bool is_encoder_type(std::string_view model_type);

// config.json. `where` starts the texts of errors.
EncoderSettings parse_encoder_config(const std::string& json,
                                     const std::string& where);

// What sentence-transformers adds. Each throws ParseError for what it does not
// know.
struct SentenceModules {
  std::string transformer;  // its folder; may be empty
  std::string pooling;      // likewise; only where has_pooling
  bool has_pooling = false;
  bool normalize = false;
};
SentenceModules parse_modules(const std::string& json,
                              const std::string& where);
std::vector<Pooling> parse_pooling(const std::string& json,
                                   const std::string& where);
void parse_sentence_config(
    const std::string& json, const std::string& where,
    TextEncoderConfig& config);  // max_length and letters
void parse_prompts(const std::string& json, const std::string& where,
                   TextEncoderConfig& config);

// All of a folder, and where its weights and its tokenizer are.
struct EncoderFolder {
  EncoderSettings settings;
  std::filesystem::path weights;    // model.safetensors
  std::filesystem::path tokenizer;  // a folder
};
EncoderFolder read_encoder_folder(const std::filesystem::path& folder);

// The folder's tokenizer. Throws ParseError where it does not fit the model.
std::unique_ptr<text::Tokenizer> load_encoder_tokenizer(
    const EncoderFolder& folder);

}  // namespace regard::tasks
