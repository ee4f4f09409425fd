// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "regard/core/threads.h"
#include "regard/nn/decoding.h"
#include "regard/nn/encoder.h"
#include "regard/nn/transformer.h"
#include "regard/ops/weight_storage.h"
#include "regard/tasks/translation_data.h"
#include "regard/tensor/tensor.h"
#include "regard/text/tokenizer.h"

namespace regard::tasks {

struct TranslatorConfig {
  nn::TransformerConfig model;
  Languages languages;
  // The model reads a text whole, as those that summarize do; else one sentence
  // at a time. One that was trained here reads the end of a sentence where a
  // line ends, copies no unknown characters, and its kind is another.
  bool whole_texts = false;
  // Of translations, where TranslateOptions does not say; from -10 to 10.
  double length_penalty = 1;
};

// The layers of an encoder, and as wide ones of a decoder: one table for both
// sides and the output.
nn::TransformerConfig with_decoder(const nn::EncoderConfig& encoder,
                                   std::int64_t decoder_layers);

struct TranslateOptions {
  std::int64_t beam = 5;   // 1 is greedy
  std::int64_t nbest = 1;  // at most `beam`
  // Scores are divided by length^penalty, from -10 to 10; none: as the model
  // has it.
  std::optional<double> length_penalty = {};
  std::int64_t max_length = 0;  // of an output; 0 means 2 * source + 20
  // Never repeat a sequence of so many tokens; 0: repetitions are allowed.
  std::int64_t no_repeat_ngram = 0;
  bool align = false;  // keep where each piece looked
  // The language, where a model knows two. Empty: where one of them is zh, the
  // script of each sentence tells.
  std::string to = {};
  std::int64_t batch = 32;  // sentences at once
  Threads threads = {};
};

struct Translation {
  std::string text;
  double score = 0;  // log-probability / length^penalty
  // Where asked for: row t says where target piece t looked, by the weights
  // that the last layer but one of the decoder gave the source pieces.
  std::vector<std::string> source_pieces;
  std::vector<std::string> target_pieces;
  std::vector<std::vector<float>> alignment;
};

// A translation, and what every head looked at while it came to be. All but
// `text` is empty where the model reads nothing, because all is copied.
struct TranslationTrace {
  std::string text{};
  std::vector<std::string> source{};   // what the encoder read
  std::vector<std::string> read{};     // what each step of the decoder read
  std::vector<std::string> written{};  // and wrote, the end with it if it came
  nn::AttentionTrace weights{};        // a step is a target row
};

// A model that translates. It is a folder: config.json, model.safetensors, and
// the tokenizer's file.
class Translator {
 public:
  // The folder of a model that was trained here, or of one of others:
  //
  //   CTranslate2    model.bin (float32, int16 or int8), its vocabularies, and
  //                  a SentencePiece model in it or in the folder above;
  //                  without one, what stands between blanks is a piece
  //   Hugging Face   Marian, T5 and BART: config.json, model.safetensors and
  //                  the tokenizer's files
  //
  // The weights of its products become what `weights` says, from float32;
  // kAsStored: what quantize_trained() made of them.
  // Throws IoError for a file that is missing, ParseError for one that is
  // broken, is inconsistent with the other files or is of a kind that is not
  // known, and InvalidArgument for kAsStored of any other folder.
  static Translator load(
      const std::filesystem::path& folder,
      ops::WeightStorage weights = ops::WeightStorage::kFloat32);

  Translator(TranslatorConfig config,
             std::unique_ptr<text::Tokenizer> tokenizer, StateDict weights,
             ops::WeightStorage storage = ops::WeightStorage::kFloat32);
  ~Translator();
  Translator(Translator&&) noexcept;
  Translator& operator=(Translator&&) noexcept;

  // Whether it comes from CTranslate2 or Hugging Face.
  bool is_imported() const;
  const TranslatorConfig& config() const;
  const text::Tokenizer& tokenizer() const;  // of sources
  const text::Tokenizer& target_tokenizer() const;

  // For each sentence its `nbest` translations, best first. A blank sentence
  // has one, the empty one. The same sentence has the same translation
  // whatever else is in the batch and for any number of threads: each works on
  // batches of its own.
  //
  // Characters that the pieces do not know, and addresses of the web and of
  // mail, are copied into the translation, to where it looked at them most. An
  // accent without a letter that it makes one character with is left out.
  //
  // Throws InvalidArgument for options that make no sense, and for a sentence
  // that is not UTF-8 or has more pieces than the model can read.
  std::vector<std::vector<Translation>> translate(
      std::span<const std::string> sentences,
      const TranslateOptions& options = {}) const;

  // The best translation of one sentence as translate() gives it, with the
  // weights of all layers and heads; the text alone where all of it is copied.
  // options.nbest and align make no difference. Throws what translate() throws,
  // and InvalidArgument for a blank sentence.
  TranslationTrace trace(const std::string& sentence,
                         const TranslateOptions& options = {}) const;

 private:
  struct Parts;
  class Search;
  explicit Translator(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// The files of a translator, to continue training. Throws what Translator::load
// throws; that they fit each other is seen when a model is made of them.
struct TranslatorFiles {
  TranslatorConfig config;
  std::unique_ptr<text::Tokenizer> tokenizer;
  StateDict weights;  // float32
};
TranslatorFiles load_translator_files(const std::filesystem::path& folder);

// Writes config.json, the tokenizer's file and, last, model.safetensors, each
// whole or not at all. `stored` is kFloat32 or kFloat16.
void save_translator(const std::filesystem::path& folder,
                     const TranslatorConfig& config,
                     const text::Tokenizer& tokenizer, const StateDict& weights,
                     DType stored = DType::kFloat32);

// The config as its file has it, and back. Throws InvalidArgument for a
// length_penalty that is out of range, and ParseError.
std::string config_to_json(const TranslatorConfig& config);
TranslatorConfig config_from_json(const std::string& text,
                                  const std::string& name);

}  // namespace regard::tasks
