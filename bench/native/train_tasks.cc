// SPDX-License-Identifier: Apache-2.0
// The tasks that see and choose, and the C interface of all.
#include "train_tasks.h"

#include <algorithm>
#include <utility>

#include "bench.h"
#include "regard/core/float16.h"
#include "tasks/clip_tokens.h"
#include "tasks/recommender_parts.h"

namespace regard::bench {

std::vector<std::int32_t> drawn(Random& random, std::int64_t least,
                                std::int64_t below, std::int64_t count) {
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; i < count; ++i) {
    out.push_back(
        static_cast<std::int32_t>(least + random.below(below - least)));
  }
  return out;
}

nn::EncoderConfig encoder_of(const TaskCase& c) {
  nn::EncoderConfig e;
  e.vocab = c.vocab;
  e.model_dim = c.dim;
  e.heads = c.heads;
  e.layers = c.layers;
  e.feed_forward_dim = c.feed_forward;
  e.activation = nn::Activation::kRelu;
  e.max_length = c.length;
  e.dropout = c.dropout;
  return e;
}

namespace {

constexpr std::int64_t kJoints = 20;

void make_captions(const TaskCase& c, Random& random, TaskTraining& t) {
  tasks::CaptionerConfig config;
  config.pictures.kind = tasks::PictureFeatures::Kind::kMobileNetV2;
  config.layers = encoder_of(c);
  config.decoder_layers = c.decoder_layers;
  config.label_smoothing = c.smoothing;
  const std::int64_t places = config.pictures.places();
  const std::int64_t width = config.pictures.width();
  std::vector<Tensor> features;
  for (std::int64_t p = 0; p < c.examples; ++p) {
    Tensor& one = features.emplace_back(DType::kFloat16, Shape{places, width});
    for (Float16& value : one.values<Float16>()) {
      // Half of them are cut off at zero, as an activation does.
      value = Float16(std::max(0.0f, random.normal()));
      t.floats["features"].push_back(static_cast<float>(value));
    }
    auto& said = t.captions.captions.emplace_back();
    for (std::int64_t i = 0; i < c.captions; ++i) {
      // The task adds the begin and the end.
      const auto words = drawn(random, text::kEnd + 1, c.vocab,
                               c.lengths[p * c.captions + i] - 1);
      said.push_back(words);
      auto& in = t.numbers["target"];
      auto& out = t.numbers["target_out"];
      in.push_back(text::kBegin);
      in.insert(in.end(), words.begin(), words.end());
      out.insert(out.end(), words.begin(), words.end());
      out.push_back(text::kEnd);
    }
  }
  t.captions.features = tasks::FeatureSet(std::move(features));
  t.task = std::make_unique<tasks::ExampleTask>(tasks::make_caption_task(
      config, t.captions, t.no_captions, 1, {.count = c.threads}));
}

void make_clips(const TaskCase& c, Random& random, TaskTraining& t) {
  tasks::VideoConfig config;
  config.encoder = encoder_of(c);
  config.encoder.pooling = nn::Pooling::kAttention;
  for (std::int64_t i = 0; i < c.vocab; ++i) {
    config.labels.push_back(std::to_string(i));
  }
  config.format = {tasks::ClipKind::kJoints, {kJoints, 3}};
  config.frames = c.length;
  config.label_smoothing = c.smoothing;
  config.set_sizes();
  for (std::int64_t i = 0; i < c.examples; ++i) {
    Tensor& clip = t.clips.clips.emplace_back(Shape{c.length, kJoints, 3});
    for (float& value : clip.values<float>()) {
      value = random.normal();
      t.floats["clips"].push_back(value);
    }
  }
  t.clips.labels = drawn(random, 0, c.vocab, c.examples);
  t.numbers["labels"] = t.clips.labels;
  const tasks::Standard standard = tasks::standard_of(config, t.clips.clips);
  t.floats["mean"] = standard.mean;
  t.floats["scale"] = standard.scale;
  t.task = std::make_unique<tasks::ExampleTask>(tasks::make_video_task(
      config, t.clips, t.no_clips, 1, {.count = c.threads}));
}

void make_histories(const TaskCase& c, Random& random, TaskTraining& t) {
  t.recommender.encoder = encoder_of(c);
  t.recommender.encoder.positions = nn::Positions::kLearned;
  t.recommender.encoder.pooling = nn::Pooling::kLast;
  t.recommender.loss = tasks::RecommendationLoss::kBinary;
  for (std::int64_t i = 0; i < c.vocab; ++i) {
    t.log.items.push_back(std::to_string(i));
  }
  for (std::int64_t u = 0; u < c.examples; ++u) {
    // The last two are held out, the one before them is only a target.
    const auto history = drawn(random, 0, c.vocab, c.lengths[u] + 3);
    t.log.users.push_back(std::to_string(u));
    t.log.histories.push_back(history);
    auto& in = t.numbers["history"];
    auto& out = t.numbers["next"];
    in.insert(in.end(), history.begin(), history.end() - 3);
    out.insert(out.end(), history.begin() + 1, history.end() - 2);
  }
  t.task = std::make_unique<tasks::ExampleTask>(tasks::make_recommendation_task(
      t.recommender, t.log, 1, {.count = c.threads}));
}

TaskTraining* make_task(const TaskCase& c) {
  auto t = std::make_unique<TaskTraining>();
  Random random(7);
  switch (c.kind) {
    case TaskKind::kCaption:
      make_captions(c, random, *t);
      break;
    case TaskKind::kVideo:
      make_clips(c, random, *t);
      break;
    case TaskKind::kRecommend:
      make_histories(c, random, *t);
      break;
    case TaskKind::kClassify:
      make_texts(c, random, *t);
      break;
    case TaskKind::kSummarize:
      make_summaries(c, random, *t);
      break;
    case TaskKind::kAnswer:
      make_stories(c, random, *t);
      break;
  }
  t->adam = std::make_unique<AdamSteps>(t->task->parameters());
  for (std::int64_t i = 0; i < c.examples; ++i) t->batch.push_back(i);
  return t.release();
}

void step(TaskTraining& t) {
  const std::uint64_t number = t.adam->begin();
  t.last = t.task->loss_and_gradients(t.batch, number, t.adam->gradients);
  t.adam->finish(t.task->parameters(), t.last.tokens);
}

// What the next step draws.
void draw_next_negatives(TaskTraining& t) {
  Random random = tasks::negatives_at(t.adam->steps() + 1);
  std::vector<std::int32_t>& negatives = t.numbers["negatives"];
  negatives.clear();
  for (const tasks::ItemList history : t.log.histories) {
    tasks::draw_negatives(history, t.recommender.encoder.vocab,
                          std::ssize(history) - 3, random, negatives);
  }
}

// Every item's score for every history of the batch; the sum of those of the
// items that came next is kept.
void score(TaskTraining& t, Threads threads) {
  std::vector<tasks::ItemList> read;
  for (const tasks::ItemList history : t.log.histories) {
    read.push_back(history.first(history.size() - 3));
  }
  std::vector<float> own(read.size());
  t.scorer->score(
      read,
      [&](std::size_t i, std::span<const float> scores) {
        own[i] = scores[static_cast<std::size_t>(
            t.log.histories[i][read[i].size()])];
      },
      threads);
  t.scored = 0;
  for (const float one : own) t.scored += one;
}

}  // namespace
}  // namespace regard::bench

using regard::bench::guarded;
using regard::bench::TaskCase;
using regard::bench::TaskTraining;
using regard::bench::timed;

extern "C" void* regard_bench_make_task(const TaskCase* c) {
  return regard::bench::made([&] { return regard::bench::make_task(*c); });
}

extern "C" void regard_bench_release_task(void* task) {
  delete static_cast<TaskTraining*>(task);
}

// Where the values of a parameter stand; null where none has the name.
extern "C" float* regard_bench_task_parameter(void* task, const char* name) {
  auto& parameters = static_cast<TaskTraining*>(task)->task->parameters();
  const auto found = parameters.find(name);
  return found == parameters.end() ? nullptr
                                   : found->second.values<float>().data();
}

// Data of the batch by name, examples one after the other without padding:
// features, clips, mean, scale (float); target, target_out, labels, history,
// next, negatives of the next step, texts, source, words (int32). Null where
// there is none of the name.
extern "C" const void* regard_bench_task_data(void* task, const char* name,
                                              std::int64_t* count) {
  auto& t = *static_cast<TaskTraining*>(task);
  if (std::string(name) == "negatives") regard::bench::draw_next_negatives(t);
  if (const auto found = t.floats.find(name); found != t.floats.end()) {
    *count = std::ssize(found->second);
    return found->second.data();
  }
  const auto found = t.numbers.find(name);
  if (found == t.numbers.end()) return nullptr;
  *count = std::ssize(found->second);
  return found->second.data();
}

// Of the last step, per token or example.
extern "C" double regard_bench_task_loss(void* task) {
  const regard::nn::LossSum& last = static_cast<TaskTraining*>(task)->last;
  return last.loss / static_cast<double>(last.tokens);
}

extern "C" double regard_bench_train_task(void* task, std::int64_t calls) {
  return guarded([&] {
    return timed(
        calls, [&] { regard::bench::step(*static_cast<TaskTraining*>(task)); });
  });
}

// Every item for every history, with the parameters of the first call.
extern "C" double regard_bench_score_items(void* task, std::int32_t threads,
                                           std::int64_t calls) {
  return guarded([&] {
    auto& t = *static_cast<TaskTraining*>(task);
    if (!t.scorer) {
      t.scorer = std::make_unique<regard::tasks::Recommender>(
          t.recommender, t.log.items, t.task->parameters());
    }
    return timed(calls, [&] { regard::bench::score(t, {.count = threads}); });
  });
}

// The sum that the last call of score_items kept.
extern "C" double regard_bench_scored_sum(void* task) {
  return static_cast<TaskTraining*>(task)->scored;
}
