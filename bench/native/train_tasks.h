// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "adam_steps.h"
#include "regard/core/random.h"
#include "regard/nn/transformer.h"
#include "regard/tasks/answerer.h"
#include "regard/tasks/captioner.h"
#include "regard/tasks/classifier.h"
#include "regard/tasks/recommender.h"
#include "regard/tasks/translation_data.h"
#include "regard/tasks/video_classifier.h"

// Training steps of tasks, for bench/train.py: the code that `regard train`
// runs, on data made up here, which the peers read by their names.
namespace regard::bench {

enum class TaskKind : std::int32_t {
  kCaption,
  kVideo,
  kRecommend,
  kClassify,
  kSummarize,
  kAnswer
};

// Mirrored by bench/lib/task_training.py.
struct TaskCase {
  TaskKind kind;
  std::int32_t threads;
  std::int64_t dim, heads, layers, decoder_layers, feed_forward;
  std::int64_t vocab;     // words or items; of clips the labels
  std::int64_t labels;    // of texts, or the answers that there are
  std::int64_t examples;  // pictures, clips, users, texts or stories
  std::int64_t length;    // the most tokens, frames, items or sentences
  std::int64_t captions;  // per picture
  // Of each caption, history, text or story, in their order; not of clips.
  const std::int64_t* lengths;
  // Of each summary, or of each sentence of all stories.
  const std::int64_t* part_lengths;
  float dropout, smoothing;
};

// A task with its data, and what the peers read of it. The task borrows the
// data: it stands last.
struct TaskTraining {
  tasks::CaptionData captions{{}, tasks::FeatureSet(std::vector<Tensor>{})};
  tasks::CaptionData no_captions{{}, tasks::FeatureSet(std::vector<Tensor>{})};
  tasks::VideoData clips, no_clips;
  tasks::Interactions log;
  tasks::RecommenderConfig recommender;
  tasks::ClassificationData texts, no_texts;
  tasks::TranslationData summaries, no_summaries;
  std::unique_ptr<nn::Transformer> summarizer;
  tasks::AnswerData stories, no_stories;
  std::vector<std::int64_t> batch;
  std::map<std::string, std::vector<float>> floats;
  std::map<std::string, std::vector<std::int32_t>> numbers;
  nn::LossSum last;  // of the last step
  std::unique_ptr<tasks::Recommender> scorer;
  double scored = 0;
  std::unique_ptr<train::TrainingTask> task;
  std::unique_ptr<AdamSteps> adam;
};

// `count` numbers in [least, below).
std::vector<std::int32_t> drawn(Random& random, std::int64_t least,
                                std::int64_t below, std::int64_t count);

nn::EncoderConfig encoder_of(const TaskCase& c);

// The tasks that read: data and a task, as the training commands make them.
void make_texts(const TaskCase& c, Random& random, TaskTraining& t);
void make_summaries(const TaskCase& c, Random& random, TaskTraining& t);
void make_stories(const TaskCase& c, Random& random, TaskTraining& t);

}  // namespace regard::bench
