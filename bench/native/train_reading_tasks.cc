// SPDX-License-Identifier: Apache-2.0
// The tasks that read: classification, summarization, question answering.
#include <string>
#include <utility>

#include "regard/tasks/translation_task.h"
#include "regard/tasks/translator.h"
#include "train_tasks.h"

namespace regard::bench {
namespace {

// What the training commands of reading models have by default.
nn::EncoderConfig reader_of(const TaskCase& c) {
  nn::EncoderConfig e = encoder_of(c);
  e.activation = nn::Activation::kGelu;
  e.positions = nn::Positions::kRotary;
  return e;
}

std::vector<std::string> names(std::int64_t count) {
  std::vector<std::string> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(std::to_string(i));
  return out;
}

void append(std::vector<std::int32_t>& all,
            const std::vector<std::int32_t>& some) {
  all.insert(all.end(), some.begin(), some.end());
}

}  // namespace

void make_texts(const TaskCase& c, Random& random, TaskTraining& t) {
  tasks::ClassifierConfig config;
  config.encoder = reader_of(c);
  config.encoder.pooling = nn::Pooling::kMean;
  config.labels = names(c.labels);
  config.label_smoothing = c.smoothing;
  for (std::int64_t i = 0; i < c.examples; ++i) {
    std::vector<std::int32_t> text =
        drawn(random, text::kEnd + 1, c.vocab, c.lengths[i]);
    text.front() = text::kBegin;
    append(t.numbers["texts"], text);
    t.texts.texts.push_back(std::move(text));
  }
  t.texts.labels = drawn(random, 0, c.labels, c.examples);
  t.numbers["labels"] = t.texts.labels;
  t.task = std::make_unique<tasks::ExampleTask>(tasks::make_classification_task(
      config, t.texts, t.no_texts, 1, {.count = c.threads}));
}

void make_summaries(const TaskCase& c, Random& random, TaskTraining& t) {
  nn::TransformerConfig config =
      tasks::with_decoder(reader_of(c), c.decoder_layers);
  config.copy = true;
  config.label_smoothing = c.smoothing;
  for (std::int64_t i = 0; i < c.examples; ++i) {
    std::vector<std::int32_t> source =
        drawn(random, text::kEnd + 1, c.vocab, c.lengths[i]);
    source.back() = text::kEnd;
    // Half of a summary's words come from its text, so that there is something
    // to copy. The task adds the begin and the end.
    std::vector<std::int32_t> target =
        drawn(random, text::kEnd + 1, c.vocab, c.part_lengths[i] - 1);
    for (std::size_t w = 0; w < target.size(); w += 2) {
      target[w] =
          source[static_cast<std::size_t>(random.below(c.lengths[i] - 1))];
    }
    append(t.numbers["source"], source);
    t.numbers["target"].push_back(text::kBegin);
    append(t.numbers["target"], target);
    append(t.numbers["target_out"], target);
    t.numbers["target_out"].push_back(text::kEnd);
    t.summaries.sources.append(source);
    t.summaries.targets.append(target);
  }
  t.summarizer = std::make_unique<nn::Transformer>(config, std::uint64_t{1});
  t.summarizer->set_threads({.count = c.threads});
  t.task = std::make_unique<tasks::TranslationTask>(*t.summarizer, t.summaries,
                                                    t.no_summaries);
}

void make_stories(const TaskCase& c, Random& random, TaskTraining& t) {
  tasks::AnswererConfig config;
  config.encoder = reader_of(c);
  config.encoder.pooling = nn::Pooling::kFirst;
  config.encoder.shared_layers = true;
  config.answers = names(c.labels);
  config.label_smoothing = c.smoothing;
  const std::int64_t* words = c.part_lengths;
  for (std::int64_t i = 0; i < c.examples; ++i) {
    tasks::EncodedStory& story = t.stories.stories.emplace_back();
    for (std::int64_t s = 0; s < c.lengths[i]; ++s, ++words) {
      append(story.words, drawn(random, text::kEnd + 1, c.vocab, *words));
      story.lengths.push_back(static_cast<std::int32_t>(*words));
    }
    append(t.numbers["words"], story.words);
  }
  t.stories.answers = drawn(random, 0, c.labels, c.examples);
  t.numbers["labels"] = t.stories.answers;
  t.task = std::make_unique<tasks::ExampleTask>(tasks::make_answer_task(
      config, t.stories, t.no_stories, 1, {.count = c.threads}));
}

}  // namespace regard::bench
