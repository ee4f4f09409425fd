// SPDX-License-Identifier: Apache-2.0
// The run of a training, the same for every task: what is left to a task is its
// data, its model and its measure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "cli/learning_flags.h"
#include "cli/ranks.h"
#include "regard/nn/encoder.h"
#include "regard/tensor/tensor.h"
#include "regard/text/tokenizer.h"
#include "regard/train/log.h"
#include "regard/train/training.h"

namespace regard::cli {

// A model's folder while it learns: FOLDER/training holds the checkpoint.
// `command` is "train classify", for errors. Of several ranks, rank 0 writes,
// and all read the tokenizer of a run that goes on.
class TrainingFolder {
 public:
  // Throws InvalidArgument where a training is there and --resume is not.
  TrainingFolder(const LearningFlags& flags, const char* command, Ranks& ranks);

  const std::filesystem::path& path() const { return folder_; }
  // Is there a checkpoint to go on from? Then the tokenizer is in the folder
  // already.
  bool goes_on() const { return goes_on_; }
  void create() const;  // once the data are read
  // The same, with the tokenizer, unless the run goes on with its own.
  void create(const text::Tokenizer& tokenizer) const;

  struct Outcome {
    train::TrainingResult result;
    train::RunHistory history;
  };
  // Trains with progress on standard error, calls `save` with the weights,
  // draws the curve and says where the model is. Where a signal ends it, says
  // how to go on and throws Stopped. `unit` is what a loss is counted in. The
  // history is rank 0's.
  Outcome run(train::TrainingTask& task,
              const std::map<std::string, std::string>& settings,
              const char* unit,
              const std::function<void(const StateDict&)>& save) const;

  // What the card of a model tells beside how it was trained.
  struct Card {
    const char* title;    // "Classifier"
    std::string facts;    // lines that start with "- "
    const char* unit;     // what has a loss: "text"
    const char* example;  // a command that uses the model
    const char* caution;
  };
  // Prints what the held-out data came to, a line or nothing, and writes the
  // card. For rank 0.
  void finish(const Outcome& outcome, const std::string& score,
              const Card& card) const;

 private:
  const LearningFlags& flags_;
  const char* command_;
  Ranks& ranks_;
  std::filesystem::path folder_, work_;
  bool goes_on_ = false;
};

// The lines of a model's card that are the same for every task, and the file
// itself: README.md. One that the user has written or changed is left alone,
// with a note on standard error; training/card.md has the new one then.
std::string learning_lines(const LearningFlags& flags,
                           const TrainingFolder::Outcome& outcome,
                           const char* unit);
void write_card(const std::filesystem::path& folder, const std::string& text,
                const char* command);

// A config as settings for train::TrainingOptions: the members of a JSON
// object, in plain words.
void add_settings(const std::string& json,
                  std::map<std::string, std::string>& settings);

// "2 layers, width 128, 4 heads, feed-forward 256"
std::string size_text(const nn::EncoderConfig& config);

std::int64_t parameter_count(const StateDict& weights);

}  // namespace regard::cli
