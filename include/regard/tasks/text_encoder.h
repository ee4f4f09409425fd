// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/core/threads.h"
#include "regard/ops/weight_storage.h"
#include "regard/tensor/tensor.h"
#include "regard/text/tokenizer.h"

namespace regard::tasks {

// How the vectors of a text's n tokens become one. Several stand side by side.
enum class Pooling {
  kCls,           // the first token's
  kMax,           // the largest of each element
  kMean,          // sum / n
  kMeanSqrtLen,   // sum / sqrt(n)
  kWeightedMean,  // sum of i x_i / sum of i, i from 1 to n
  kLastToken,
};
std::string_view pooling_name(
    Pooling pooling);  // as sentence-transformers has it

struct TextEncoderConfig {
  std::string family;  // bert, roberta, distilbert, mpnet or albert
  std::int64_t vocab = 0;
  std::int64_t model_dim = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t feed_forward_dim = 0;
  std::int64_t max_length = 0;  // tokens of a text that are read
  std::vector<Pooling> pooling{};
  bool normalize = false;  // vectors of length 1
  // What stands before a text of some purpose ("query"), by its name.
  std::map<std::string, std::string> prompts{};
  std::string default_prompt{};  // the name of one of them, or empty
  bool lower_case = false;       // texts become small letters first

  std::int64_t head_dim() const { return model_dim / heads; }
  std::int64_t embedding_dim() const {
    return model_dim * static_cast<std::int64_t>(pooling.size());
  }
};

struct TextEncoderOptions {
  // The name of one of the model's prompts. Empty: its default, if it has one.
  std::string prompt{};
  Threads threads{};
  // So many of all texts are done. Called now and then, by any thread, by one
  // at a time. What it throws ends the call.
  std::function<void(std::int64_t done, std::int64_t all)> progress{};
};

// What a model makes of one text, layer by layer.
struct TextTrace {
  std::vector<std::string> pieces{};  // as the tokenizer writes them
  text::Encoding encoding{};          // with offsets into `text`
  std::string text{};                 // what was read, its prompt included
  // [layers + 1, tokens, model_dim]: the embeddings, then what each layer gave.
  Tensor hidden_states{};
  Tensor weights{};  // [layers, heads, tokens, tokens]
  // [layers, heads, tokens, head_dim], what the weights were made of; empty for
  // MPNet, whose scores have a bias, too.
  Tensor queries{}, keys{};
};

// Does the config.json of a folder name a kind of model that TextEncoder reads?
// Looks at nothing else; false where there is no such file, or a broken one.
bool is_text_encoder(const std::filesystem::path& folder);

// A pretrained encoder that turns texts into vectors. Any number of threads may
// use one at a time. The bits of a text's vector depend on the text and on the
// model: on no other text, no batch and no number of threads.
class TextEncoder {
 public:
  // A folder as Hugging Face and sentence-transformers write it: config.json,
  // model.safetensors, a tokenizer, and where they are there modules.json, the
  // pooling's config.json, sentence_bert_config.json and
  // config_sentence_transformers.json. Without modules.json the pooling is the
  // mean. Families: BERT, RoBERTa (XLM-R and CamemBERT, too), DistilBERT,
  // MPNet, ALBERT.
  //
  // The file of weights stays mapped. Throws IoError where something cannot be
  // read, ParseError for what is broken or not known: the text names the file,
  // the field or tensor, and what was expected.
  static TextEncoder load(
      const std::filesystem::path& folder, Threads threads = {},
      ops::WeightStorage weights = ops::WeightStorage::kFloat32);
  ~TextEncoder();
  TextEncoder(TextEncoder&&) noexcept;
  TextEncoder& operator=(TextEncoder&&) noexcept;

  const TextEncoderConfig& config() const;
  const text::Tokenizer& tokenizer() const;

  // [texts, embedding_dim]. A text beyond max_length tokens is cut there; one
  // of no tokens at all has zeros. Throws InvalidArgument for a prompt that is
  // not there.
  Tensor encode(std::span<const std::string> texts,
                const TextEncoderOptions& options = {}) const;

  TextTrace trace(std::string_view text,
                  const TextEncoderOptions& options = {}) const;

 private:
  struct Parts;
  explicit TextEncoder(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace regard::tasks
