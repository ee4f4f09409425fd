// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "regard/core/threads.h"
#include "regard/nn/encoder.h"
#include "regard/ops/weight_storage.h"
#include "regard/tasks/example_task.h"
#include "regard/tensor/tensor.h"
#include "regard/text/tokenizer.h"

namespace regard::tasks {

// Texts, and what each is.
struct LabelledTexts {
  std::vector<std::string> texts;
  std::vector<std::string> labels;
  std::vector<std::int64_t> lines = {};  // of the file, where there is one

  std::int64_t size() const { return static_cast<std::int64_t>(texts.size()); }
};

// The columns `text` and `label` of a table (regard/text/table.h).
LabelledTexts read_labelled_texts(const std::filesystem::path& path,
                                  const std::string& text = "text",
                                  const std::string& label = "label");

// What is left out of a text that is longer than max_length.
enum class Truncation {
  kEnd,
  kStart,
  kMiddle,  // a quarter of what is read is the text's start, the rest its end
};

struct ClassifierConfig {
  nn::EncoderConfig encoder;
  std::vector<std::string> labels;  // at least two, none twice
  // Texts stand between the tokenizer's own special tokens, as [CLS] and [SEP],
  // as pretrained encoders read them; otherwise kBegin stands before them.
  bool special_tokens = false;
  Truncation truncation = Truncation::kEnd;
  // For training alone.
  float label_smoothing = 0.0f;
  float token_dropout = 0.0f;  // tokens that are read as unknown, in [0, 1)
};

// Texts as the encoder reads them: pieces and special tokens, cut to
// max_length.
struct ClassificationData {
  std::vector<std::vector<std::int32_t>> texts;
  std::vector<std::int32_t> labels;
  std::int64_t cut = 0;      // texts of which not all is read
  std::int64_t unknown = 0;  // pieces that the vocabulary does not have

  std::int64_t size() const { return static_cast<std::int64_t>(texts.size()); }
};

// Throws InvalidArgument for a label that is none of the config's, with its
// line.
ClassificationData encode_texts(const LabelledTexts& texts,
                                const text::Tokenizer& tokenizer,
                                const ClassifierConfig& config);

// An encoder, one vector for each text, and a linear layer that gives each
// label a score (head.weight [labels, model_dim], head.bias): the task learns
// the cross entropy. Borrows the data. ExampleTask::begin_with() gives it the
// weights of a pretrained encoder, or of a classifier.
ExampleTask make_classification_task(const ClassifierConfig& config,
                                     const ClassificationData& training,
                                     const ClassificationData& held_out,
                                     std::uint64_t seed, Threads threads = {});

struct LabelProbability {
  std::int32_t label = 0;  // of the config's
  float probability = 0;
};

// What a word weighed.
struct WordWeight {
  std::string word;
  std::int64_t begin = 0;  // byte of the text
  // How much less likely the label is without the word: below 0 it spoke
  // against it.
  float occlusion = 0;
  // Attention rollout: the word's share of what all layers looked at.
  float rollout = 0;
};

struct Explanation {
  std::vector<LabelProbability> labels;  // most likely first
  std::vector<WordWeight> words;         // those that are read, in their order
};

// A model that says what texts are. It is a folder: config.json,
// model.safetensors, and the tokenizer's file.
class Classifier {
 public:
  // Throws IoError for a file that is missing, ParseError for one that is
  // broken or is inconsistent with the other files.
  // Matrices of products become what `weights` says; tables, norms and biases
  // stay float32. kAsStored is for folders that quantize_trained() wrote:
  // InvalidArgument for any other.
  static Classifier load(
      const std::filesystem::path& folder,
      ops::WeightStorage weights = ops::WeightStorage::kFloat32);

  Classifier(ClassifierConfig config,
             std::unique_ptr<text::Tokenizer> tokenizer, StateDict weights,
             ops::WeightStorage storage = ops::WeightStorage::kFloat32);
  ~Classifier();
  Classifier(Classifier&&) noexcept;
  Classifier& operator=(Classifier&&) noexcept;

  const ClassifierConfig& config() const;
  // Of all weights, in memory.
  std::size_t weight_bytes() const;
  const text::Tokenizer& tokenizer() const;

  // For each text all labels, most likely first. The bits of a text's
  // probabilities depend on no other text and on no number of threads.
  std::vector<std::vector<LabelProbability>> classify(
      std::span<const std::string> texts, Threads threads = {}) const;

  // Why the most likely label: by occlusion (the text once more without each
  // word) and by attention rollout (Abnar and Zuidema, 2020). A word is what
  // the tokenizer calls so; where it finds only one, a piece.
  Explanation explain(const std::string& text, Threads threads = {}) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// A classifier's folder as it lies on the disk, to continue training; the
// weights are float32. Throws as Classifier::load() does.
struct ClassifierFiles {
  ClassifierConfig config;
  std::unique_ptr<text::Tokenizer> tokenizer;
  StateDict weights;
};
ClassifierFiles load_classifier_files(const std::filesystem::path& folder);

void save_classifier(const std::filesystem::path& folder,
                     const ClassifierConfig& config,
                     const text::Tokenizer& tokenizer, const StateDict& weights,
                     DType stored = DType::kFloat32);

// The config as its file has it.
std::string config_to_json(const ClassifierConfig& config);

}  // namespace regard::tasks
