// SPDX-License-Identifier: Apache-2.0
// regard train answer: a model that answers questions about what it was told.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/checks.h"
#include "cli/encoder_flags.h"
#include "cli/screen.h"
#include "cli/train.h"
#include "cli/training_folder.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/tasks/answerer.h"

namespace regard::cli {
namespace {

using tasks::AnswerData;
using tasks::Story;

constexpr const char* kCommand = "train answer";

struct TrainAnswerFlags {
  std::vector<std::string> train, valid;
  double valid_share = 0.1;
  TextFlags text;
  EncoderFlags encoder;
  std::int64_t max_sentences = 64;
  std::int64_t max_words = 64;
  bool shared_layers = false;
  double smoothing = 0.0;
  LearningFlags learning;
};

constexpr const char* kFooter =
    R"(A file of examples is a table with the columns context, question and answer, in
UTF-8 (.tsv, .csv or .jsonl by its name), or a .txt in the format of bAbI:
numbered lines, a tab before the answer of a question:
  1 Mary moved to the bathroom.
  2 Where is Mary?<TAB>bathroom<TAB>1
An answer is one of those that the training files have. A line that is wrong is
named, and nothing is trained. Without files to validate with, a share of the
questions is held out, chosen by --seed and the stories themselves.

The folder becomes a model for `regard answer`. Its folder `training` holds what
--resume needs. The same command gives the same bits, for any number of threads,
and whether it was stopped or not.

Examples:
  regard sample answer --out stories
  regard train answer --train stories/train.tsv --out stories-model
  regard train answer --train qa1_train.txt --train qa2_train.txt --out babi)";

void add_data(App& app, TrainAnswerFlags& f) {
  const char* group = "Data";
  app.add_option("--train", f.train, "Stories, questions, answers; once a file")
      ->type_name("FILE")
      ->required()
      ->group(group);
  add_held_out_flags(app, f.valid, f.valid_share);
  add_folder_flags(app, f.learning);
}

std::vector<Story> read_all(const std::vector<std::string>& files) {
  std::vector<Story> all;
  for (const std::string& file : files) {
    const std::vector<Story> some = tasks::read_stories(file);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

struct Data {
  std::vector<Story> training, held_out;
};

Data load_data(const TrainAnswerFlags& f) {
  Data data;
  const std::vector<Story> all = read_all(f.train);
  if (!f.valid.empty()) {
    data.training = all;
    data.held_out = read_all(f.valid);
  } else {
    // By the first two sentences: the questions of a story fall on one side.
    std::vector<std::string> keys;
    for (const Story& story : all) {
      keys.push_back(story.sentences.empty() ? story.question
                                             : story.sentences.front());
      if (story.sentences.size() > 1) keys.back() += story.sentences[1];
    }
    const tasks::Split split =
        tasks::split_examples(keys, f.valid_share, f.learning.seed);
    for (const std::int64_t i : split.training) {
      data.training.push_back(all[static_cast<std::size_t>(i)]);
    }
    for (const std::int64_t i : split.held_out) {
      data.held_out.push_back(all[static_cast<std::size_t>(i)]);
    }
  }
  require(!data.training.empty(), kCommand,
          "there are no questions to learn from in '", f.train.front(), "'");
  return data;
}

// Of all data: an answer that only held-out questions have is never learnt.
std::vector<std::string> answers_of(const Data& data) {
  std::vector<std::string> answers;
  for (const auto* part : {&data.training, &data.held_out}) {
    for (const Story& story : *part) answers.push_back(story.answer);
  }
  std::sort(answers.begin(), answers.end());
  answers.erase(std::unique(answers.begin(), answers.end()), answers.end());
  require(answers.size() >= 2, kCommand,
          "there must be at least two answers; all are '", answers.front(),
          "'");
  return answers;
}

std::vector<std::string> texts_of(const std::vector<Story>& stories) {
  std::vector<std::string> texts;
  for (const Story& story : stories) {
    texts.push_back(story.question);
    texts.insert(texts.end(), story.sentences.begin(), story.sentences.end());
  }
  return texts;
}

void tell_data(const char* what, const AnswerData& data) {
  std::string text = fmt::format("{}: {} questions", what, data.size());
  if (data.cut > 0) {
    text += fmt::format(", {} with stories of which not all is read", data.cut);
  }
  std::fprintf(stderr, "%s\n", text.c_str());
}

std::string summary_of(const AnswerData& data) {
  std::vector<std::vector<std::int32_t>> texts;
  for (const tasks::EncodedStory& story : data.stories) {
    texts.push_back(story.words);
    texts.back().insert(texts.back().end(), story.lengths.begin(),
                        story.lengths.end());
  }
  return tasks::summary_of(texts, data.answers);
}

std::map<std::string, std::string> settings_of(
    const TrainAnswerFlags& f, const tasks::AnswererConfig& config,
    const AnswerData& training, const AnswerData& held_out) {
  std::map<std::string, std::string> settings;
  add_settings(f.text, settings);
  const auto json = Json::parse(tasks::config_to_json(config));
  add_settings(json.at("encoder").dump(), settings);
  settings["--max-words"] = std::to_string(f.max_words);
  settings["--smoothing"] = fmt::format("{}", f.smoothing);
  settings["training data"] = summary_of(training);
  settings["held-out data"] = summary_of(held_out);
  return settings;
}

std::string held_out_line(const std::filesystem::path& folder,
                          const std::vector<Story>& stories, int threads) {
  if (stories.empty()) return "";
  const tasks::Answerer model = tasks::Answerer::load(folder);
  const auto answers = model.answer(stories, {.count = threads});
  std::int64_t right = 0;
  for (std::size_t i = 0; i < stories.size(); ++i) {
    right += answers[i].text == stories[i].answer;
  }
  return fmt::format(
      "Held out ({} questions): {:.2f} % right\n", stories.size(),
      100.0 * static_cast<double>(right) / static_cast<double>(stories.size()));
}

void run(const TrainAnswerFlags& f, Ranks& ranks) {
  check(f.learning);
  check(f.text);
  encoder_config(f.encoder, 1);
  const TrainingFolder folder(f.learning, kCommand, ranks);
  const Data data = load_data(f);
  tasks::AnswererConfig config;
  config.answers = answers_of(data);
  config.max_words = f.max_words;
  config.label_smoothing = static_cast<float>(f.smoothing);
  const auto tokenizer = folder.goes_on()
                             ? text::load_tokenizer(folder.path())
                             : make_tokenizer(f.text, texts_of(data.training));
  config.encoder = encoder_config(f.encoder, tokenizer->size());
  config.encoder.shared_layers = f.shared_layers;
  config.encoder.max_length = f.max_sentences + 1;
  const AnswerData training =
      tasks::encode_stories(data.training, *tokenizer, config);
  const AnswerData held_out =
      tasks::encode_stories(data.held_out, *tokenizer, config);
  tell_data("training", training);
  tell_data("held out", held_out);
  tasks::ExampleTask task =
      tasks::make_answer_task(config, training, held_out, f.learning.seed,
                              {.count = f.learning.threads});
  std::fprintf(stderr, "%lld pieces, %zu answers, %lld parameters\n",
               static_cast<long long>(tokenizer->size()), config.answers.size(),
               static_cast<long long>(parameter_count(task.parameters())));
  folder.create(*tokenizer);
  const TrainingFolder::Outcome outcome =
      folder.run(task, settings_of(f, config, training, held_out), "examples",
                 [&](const StateDict& weights) {
                   tasks::save_answerer(folder.path(), config, *tokenizer,
                                        weights, f.learning.stored());
                 });
  if (!ranks.first()) return;
  const nn::EncoderConfig& e = config.encoder;
  folder.finish(
      outcome, held_out_line(folder.path(), data.held_out, f.learning.threads),
      {"Answerer",
       fmt::format("- Data: {} questions, {} answers\n- Text: {} pieces ({})\n"
                   "- Model: {}, {} parameters; dropout {}\n",
                   training.size(), config.answers.size(), e.vocab,
                   f.text.pieces, size_text(e),
                   parameter_count(outcome.result.weights), e.dropout),
       "question",
       "regard answer --model FOLDER --context story.txt \"a question?\"",
       "It knows nothing but its data, and always gives one of the answers "
       "that it has seen."});
}

}  // namespace

Command add_train_answer(App& train, Ranks& ranks) {
  const auto flags = std::make_shared<TrainAnswerFlags>();
  LearningFlags& learning = flags->learning;
  learning.updates = 3000;
  learning.schedule = "cosine";
  learning.rate = 0.001;
  learning.warmup = 200;
  learning.average = 1;
  flags->encoder.pooling = "first";
  flags->encoder.layers = 3;
  flags->encoder.positions = "sinusoidal";
  App* app = train.add_subcommand(
      "answer", "A model that answers questions about stories");
  app->footer(kFooter);
  add_data(*app, *flags);
  add_text_flags(*app, flags->text);
  add_layer_flags(*app, flags->encoder);
  app->add_option("--max-sentences", flags->max_sentences,
                  "Of a story, the last ones")
      ->check(whole_between(1, 100000))
      ->capture_default_str()
      ->group("Model");
  app->add_option("--max-words", flags->max_words,
                  "Of a sentence, the first ones")
      ->check(whole_between(1, 100000))
      ->capture_default_str()
      ->group("Model");
  app->add_flag("--shared-layers", flags->shared_layers,
                "All layers have the same weights")
      ->group("Model");
  app->add_option("--smoothing", flags->smoothing, "Label smoothing")
      ->check(real_between(0, 0.95))
      ->capture_default_str()
      ->group("Model");
  add_learning_flags(*app, learning);
  return {app, [flags, &ranks] { run(*flags, ranks); }};
}

}  // namespace regard::cli
