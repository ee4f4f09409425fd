// SPDX-License-Identifier: Apache-2.0
// regard train answer: what its three kinds of models share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/encoder_flags.h"
#include "cli/learning_flags.h"
#include "cli/ranks.h"
#include "regard/core/error.h"
#include "regard/tasks/answerer.h"
#include "regard/tasks/example_task.h"

namespace regard::cli {

inline constexpr const char* kTrainAnswer = "train answer";

struct TrainAnswerFlags {
  std::vector<std::string> train, valid;
  double valid_share = 0.1;
  tasks::AnswerKind kind = tasks::AnswerKind::kKnown;
  TextFlags text;
  EncoderFlags encoder;
  std::int64_t max_sentences = 64;
  std::int64_t max_words = 64;
  std::int64_t word_layers = 0;
  bool shared_layers = false;
  bool support = false;
  double blank_sentences = 0.0;
  double smoothing = 0.0;
  std::int64_t overlap = 64;
  std::int64_t max_answer = 30;
  double token_dropout = 0.0;
  LearningFlags learning;
};

// Examples of all files, and which are held out where no file says it: by the
// key of each, so that equals fall on one side.
template <typename Example>
struct AnswerExamples {
  std::vector<Example> training, held_out;
};
template <typename Example, typename Read, typename Key>
AnswerExamples<Example> load_answer_examples(const TrainAnswerFlags& f,
                                             const Read& read, const Key& key) {
  const auto read_all = [&](const std::vector<std::string>& files) {
    std::vector<Example> all;
    for (const std::string& file : files) {
      const std::vector<Example> some = read(file);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  };
  AnswerExamples<Example> data;
  std::vector<Example> all = read_all(f.train);
  if (!f.valid.empty()) {
    data.training = std::move(all);
    data.held_out = read_all(f.valid);
  } else {
    std::vector<std::string> keys;
    for (const Example& example : all) keys.push_back(key(example));
    const tasks::Split split =
        tasks::split_examples(keys, f.valid_share, f.learning.seed);
    for (const std::int64_t i : split.training) {
      data.training.push_back(all[static_cast<std::size_t>(i)]);
    }
    for (const std::int64_t i : split.held_out) {
      data.held_out.push_back(all[static_cast<std::size_t>(i)]);
    }
  }
  require(!data.training.empty(), kTrainAnswer,
          "there are no questions to learn from in '", f.train.front(), "'");
  return data;
}

void train_spans(const TrainAnswerFlags& flags, Ranks& ranks);
void train_choices(const TrainAnswerFlags& flags, Ranks& ranks);

}  // namespace regard::cli
