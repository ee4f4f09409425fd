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

// A text, a question about it, and the answer, which the text has word by word.
struct SpanQuestion {
  std::string context;
  std::string question;
  // Those that are right, the first of which is learnt; empty where not known.
  std::vector<std::string> answers = {};
  std::int64_t begin = 0;  // byte of the context where answers[0] begins
  std::int64_t line = 0;   // of the file, or the number of the question
};

// What the end of a file's name says:
//
//   .json    SQuAD 1.1. Questions that have no answer (SQuAD 2) are refused.
//   .txt     bAbI (regard/tasks/answerer.h): the answer is looked for in the
//            supporting sentences first, and then from the last one back
//   a table  the columns context, question and answer, and, if it is there,
//            start: the character at which the answer begins, from 0 on.
//            Without it the first place counts that has the answer.
//
// Throws IoError and ParseError, with the number of the line or question, also
// for an answer that the context does not have.
std::vector<SpanQuestion> read_span_questions(
    const std::filesystem::path& path);

struct SpanAnswererConfig {
  // max_length is how many tokens are read at once: <s>, question, </s> and a
  // window of the context. pooling must be kFirst.
  nn::EncoderConfig encoder;
  std::int64_t overlap = 64;     // tokens that two windows have in common
  std::int64_t max_answer = 30;  // tokens of an answer
  // For training alone, in [0, 1): tokens that are read as unknown. Their kind
  // stays.
  float token_dropout = 0.0f;
};

// A question and one window of its context, as the encoder reads them.
struct SpanWindow {
  std::vector<std::int32_t> tokens;
  // 0 for the question, 1 for the context, 2 for those of its tokens that the
  // question has, too.
  std::vector<std::int32_t> kinds;
  // Places of the first and last token of the answer; 0, that of <s>, where
  // the window does not have it.
  std::int64_t begin = 0, end = 0;
};

struct SpanData {
  std::vector<SpanWindow> windows;
  std::int64_t questions = 0;
  std::int64_t unseen = 0;  // of them, those whose answer no window has
};
SpanData encode_span_questions(std::span<const SpanQuestion> questions,
                               const text::Tokenizer& tokenizer,
                               const SpanAnswererConfig& config);

// An encoder over tokens, to which a vector of their kind is added
// (kinds.weight [3, model_dim]), and two pointers from <s> to the tokens: where
// the answer begins, and where it ends. The loss is the mean of their cross
// entropies. Borrows the data.
ExampleTask make_span_task(const SpanAnswererConfig& config,
                           const SpanData& training, const SpanData& held_out,
                           std::uint64_t seed, Threads threads = {});

// Bytes [begin, end) of the context, and the product of the probabilities that
// the answer begins and ends there, in the window where it is largest. Blanks
// around it are left out. Empty, with the score 0, if the context is.
struct Span {
  std::int64_t begin = 0, end = 0;
  double score = 0;
};

// A model that quotes answers from texts of any length. It is a folder:
// config.json, model.safetensors, and the tokenizer's file.
class SpanAnswerer {
 public:
  // Throws IoError for a file that is missing, ParseError for one that is
  // broken or is inconsistent with the other files.
  // Matrices of products become what `weights` says; tables, norms and biases
  // stay float32. kAsStored is for folders that quantize_trained() wrote:
  // InvalidArgument for any other.
  static SpanAnswerer load(
      const std::filesystem::path& folder,
      ops::WeightStorage weights = ops::WeightStorage::kFloat32);

  SpanAnswerer(SpanAnswererConfig config,
               std::unique_ptr<text::Tokenizer> tokenizer, StateDict weights,
               ops::WeightStorage storage = ops::WeightStorage::kFloat32);
  ~SpanAnswerer();
  SpanAnswerer(SpanAnswerer&&) noexcept;
  SpanAnswerer& operator=(SpanAnswerer&&) noexcept;

  const SpanAnswererConfig& config() const;
  // Of all weights, in memory.
  std::size_t weight_bytes() const;

  // The best span for each question. Its bits depend on no other question and
  // on no number of threads.
  std::vector<Span> answer(std::span<const SpanQuestion> questions,
                           Threads threads = {}) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

void save_span_answerer(const std::filesystem::path& folder,
                        const SpanAnswererConfig& config,
                        const text::Tokenizer& tokenizer,
                        const StateDict& weights,
                        DType stored = DType::kFloat32);

// The config as its file has it.
std::string config_to_json(const SpanAnswererConfig& config);

// As the script of SQuAD 1.1 counts: answers in lower case, without ASCII
// punctuation and the words a, an and the. exact_match: which share is one of
// the right ones; f1: of the words that they have in common, with the right one
// that it fits best; both as means over questions, from 0 to 1. Throws
// InvalidArgument if there are not as many answers as questions, or none.
struct SpanScore {
  std::int64_t questions = 0;
  double exact_match = 0;
  double f1 = 0;
};
SpanScore score_spans(std::span<const std::string> answers,
                      std::span<const std::vector<std::string>> right);

}  // namespace regard::tasks
