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

// A text, a question about it, and answers of which one is right.
struct ChoiceQuestion {
  std::string context;
  std::string question;
  std::vector<std::string> choices;  // at least two
  std::int64_t answer = -1;          // its number; -1 where not known
  std::int64_t line = 0;             // of the file
};

// JSON Lines (.jsonl, .ndjson): objects with the strings context, question and
// answer and the array choices, one of which is the answer. Throws IoError, and
// ParseError with the number of a line that is not so.
std::vector<ChoiceQuestion> read_choice_questions(
    const std::filesystem::path& path);

struct ChoiceAnswererConfig {
  // max_length is how many tokens are read at once: <s>, a choice, </s>, the
  // question, </s> and of the context the part that has most words of both.
  nn::EncoderConfig encoder;
  // For training alone, in [0, 1): tokens that are read as unknown. Their kind
  // stays.
  float token_dropout = 0.0f;
};

// One choice of a question, as the encoder reads it.
struct EncodedChoice {
  std::vector<std::int32_t> tokens;
  // What a token belongs to, and whether it stands on the other side, too,
  // alone or behind the same token: see choice_data.cc.
  std::vector<std::int32_t> kinds;
};

struct ChoiceData {
  std::vector<std::vector<EncodedChoice>> questions;
  std::vector<std::int32_t> answers;
  std::int64_t cut = 0;  // questions of whose context not all is read
};
// Answers that are not known are -1.
ChoiceData encode_choice_questions(std::span<const ChoiceQuestion> questions,
                                   const text::Tokenizer& tokenizer,
                                   const ChoiceAnswererConfig& config);

// An encoder reads each choice with its question and its context, where a
// vector of its kind is added to each token; a pointer from the mean of the
// choices to each of them gives their probabilities. Borrows the data.
ExampleTask make_choice_task(const ChoiceAnswererConfig& config,
                             const ChoiceData& training,
                             const ChoiceData& held_out, std::uint64_t seed,
                             Threads threads = {});

// A model that chooses one of the answers that come with a question. It is a
// folder: config.json, model.safetensors, and the tokenizer's file.
class ChoiceAnswerer {
 public:
  // Throws IoError for a file that is missing, ParseError for one that is
  // broken or is inconsistent with the other files.
  // Matrices of products become what `weights` says; tables, norms and biases
  // stay float32. kAsStored is for folders that quantize_trained() wrote:
  // InvalidArgument for any other.
  static ChoiceAnswerer load(
      const std::filesystem::path& folder,
      ops::WeightStorage weights = ops::WeightStorage::kFloat32);

  ChoiceAnswerer(ChoiceAnswererConfig config,
                 std::unique_ptr<text::Tokenizer> tokenizer, StateDict weights,
                 ops::WeightStorage storage = ops::WeightStorage::kFloat32);
  ~ChoiceAnswerer();
  ChoiceAnswerer(ChoiceAnswerer&&) noexcept;
  ChoiceAnswerer& operator=(ChoiceAnswerer&&) noexcept;

  const ChoiceAnswererConfig& config() const;
  // Of all weights, in memory.
  std::size_t weight_bytes() const;

  // The probability of each choice of each question. Their bits depend on no
  // other question and on no number of threads.
  std::vector<std::vector<double>> answer(
      std::span<const ChoiceQuestion> questions, Threads threads = {}) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

void save_choice_answerer(const std::filesystem::path& folder,
                          const ChoiceAnswererConfig& config,
                          const text::Tokenizer& tokenizer,
                          const StateDict& weights,
                          DType stored = DType::kFloat32);

// The config as its file has it.
std::string config_to_json(const ChoiceAnswererConfig& config);

}  // namespace regard::tasks
