// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/core/threads.h"
#include "regard/nn/encoder.h"
#include "regard/ops/weight_storage.h"
#include "regard/tasks/example_task.h"
#include "regard/tensor/tensor.h"
#include "regard/text/tokenizer.h"

namespace regard::tasks {

// Where the answers of a model come from, by the kind that its config.json
// names. Throws IoError where there is none, and ParseError for another kind.
enum class AnswerKind {
  kKnown,    // those of its training data: Answerer
  kSpans,    // quotes of the text: SpanAnswerer
  kChoices,  // given with the question: ChoiceAnswerer
};
AnswerKind find_answer_kind(const std::filesystem::path& folder);

// What is known, in its order, a question about it, and the answer where it is
// known.
struct Story {
  std::vector<std::string> sentences;
  std::string question;
  std::string answer = "";
  std::int64_t line = 0;  // of the file
  // Which sentences the answer follows from, by their numbers from 0 on; empty
  // where nobody has said it.
  std::vector<std::int64_t> support = {};
};

// Sentences end at a line end, or at . ! ? (or their Chinese forms) before a
// blank or the end.
std::vector<std::string> split_sentences(std::string_view text);

// A table (regard/text/table.h) with the columns context, question and answer;
// or a .txt in the format of bAbI: numbered lines, where number 1 begins a new
// story, and a line with a tab is a question, a tab and its answer, and where
// there is one more tab, the numbers of the lines that it follows from. Throws
// what read_table() throws, and ParseError with the number of a line that is
// not so.
std::vector<Story> read_stories(const std::filesystem::path& path);
// The lines of a file in that format; `name` stands in the texts of errors.
std::vector<Story> parse_babi(std::span<const std::string> lines,
                              const std::string& name);

struct AnswererConfig {
  // Its tokens are sentences: max_length is one more than how many of a story
  // are read, the last ones. pooling must be kFirst, the question's.
  nn::EncoderConfig encoder;
  std::vector<std::string> answers;  // at least two, none twice
  std::int64_t max_words = 64;       // of a sentence; the rest is not read
  // Layers of an encoder of the same sizes that reads the words of a sentence
  // before they become one vector; it knows nothing of other sentences.
  std::int64_t word_layers = 0;
  // Learns which sentences an answer follows from, too.
  bool support = false;
  // For training alone, in [0, 1): how often a blank sentence stands before
  // another one, so that places are known roughly, not to the letter.
  float blank_sentences = 0.0f;
  float label_smoothing = 0.0f;
};

// A story as the encoder reads it: the question, and then the sentences from
// the last one back, so that a place is how long ago something was said.
struct EncodedStory {
  std::vector<std::int32_t> words;    // of all, one after the other
  std::vector<std::int32_t> lengths;  // of the question and each sentence
  // 1 for each that the answer follows from, else 0; empty where not known.
  std::vector<std::int32_t> support = {};
};

struct AnswerData {
  std::vector<EncodedStory> stories;
  std::vector<std::int32_t> answers;
  std::int64_t cut = 0;  // stories of which not all is read

  std::int64_t size() const { return std::ssize(stories); }
};

// Throws InvalidArgument for an answer that is none of the config's, with its
// line.
AnswerData encode_stories(std::span<const Story> stories,
                          const text::Tokenizer& tokenizer,
                          const AnswererConfig& config);

// A sentence is the mean of its words, each multiplied element by element with
// a vector that its place in the sentence has (places.weight [max_words,
// model_dim], learned), normed. An encoder reads question and sentences as its
// tokens (kinds.weight [2, model_dim] tells them apart), and a linear layer
// gives each answer a score (head.weight, head.bias); another one says of each
// sentence whether the answer follows from it (support.weight [2, model_dim],
// support.bias), if the config says so: its cross entropy is added to the loss.
// Borrows the data.
ExampleTask make_answer_task(const AnswererConfig& config,
                             const AnswerData& training,
                             const AnswerData& held_out, std::uint64_t seed,
                             Threads threads = {});

struct Answer {
  std::string text;
  float probability = 0;
  // For each sentence of the story its share of the attention, by rollout;
  // where asked for.
  std::vector<float> looked_at = {};
  // How likely it is that the answer follows from it, for each sentence; where
  // asked for, of a model that was trained with it.
  std::vector<float> support = {};
};

// A model that answers questions about what it was told. It is a folder:
// config.json, model.safetensors, and the tokenizer's file.
class Answerer {
 public:
  // Throws IoError for a file that is missing, ParseError for one that is
  // broken or is inconsistent with the other files.
  // Matrices of products become what `weights` says; tables, norms and biases
  // stay float32. kAsStored is for folders that quantize_trained() wrote:
  // InvalidArgument for any other.
  static Answerer load(
      const std::filesystem::path& folder,
      ops::WeightStorage weights = ops::WeightStorage::kFloat32);

  Answerer(AnswererConfig config, std::unique_ptr<text::Tokenizer> tokenizer,
           StateDict weights,
           ops::WeightStorage storage = ops::WeightStorage::kFloat32);
  ~Answerer();
  Answerer(Answerer&&) noexcept;
  Answerer& operator=(Answerer&&) noexcept;

  const AnswererConfig& config() const;
  // Of all weights, in memory.
  std::size_t weight_bytes() const;

  // The most likely answer to each. The bits of an answer's probability depend
  // on no other story and on no number of threads.
  std::vector<Answer> answer(std::span<const Story> stories,
                             Threads threads = {}) const;
  // The same for one, with the sentences that it looked at.
  Answer explain(const Story& story, Threads threads = {}) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

void save_answerer(const std::filesystem::path& folder,
                   const AnswererConfig& config,
                   const text::Tokenizer& tokenizer, const StateDict& weights,
                   DType stored = DType::kFloat32);

// The config as its file has it.
std::string config_to_json(const AnswererConfig& config);

}  // namespace regard::tasks
