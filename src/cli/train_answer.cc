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
#include "cli/train.h"
#include "cli/train_answer.h"
#include "cli/training_folder.h"
#include "cli/usage_error.h"
#include "json/json.h"
#include "regard/core/error.h"

namespace regard::cli {
namespace {

using tasks::AnswerData;
using tasks::Story;

constexpr const char* kFooter =
    R"(A file of examples is a table with the columns context, question and answer, in
UTF-8 (.tsv, .csv or .jsonl by its name), or a .txt in the format of bAbI:
numbered lines, a tab before the answer of a question:
  1 Mary moved to the bathroom.
  2 Where is Mary?<TAB>bathroom<TAB>1
An invalid line is an error that names the line. Without validation files, a
share of the questions is held out, chosen by --seed and the texts.

--answers says where answers come from:
  known    the set of all answers in the training files
  spans    the context contains the answer word for word. A table may have the
           column start, the character at which the answer begins, from 0 on; a
           .json is SQuAD 1.1. Contexts may be long: they are read in windows
  choices  each question has choices, in JSON Lines:
           {"context": "...", "question": "...", "choices": ["a", "b"],
            "answer": "b"}

The folder becomes a model for `regard answer`. Its folder `training` holds what
--resume needs. The same command gives the same bits, for any number of threads,
also if it was stopped and resumed.

Examples:
  regard sample answer --out stories
  regard train answer --train stories/train.tsv --out stories-model
  regard train answer --train qa1_train.txt --train qa2_train.txt --out babi
  regard train answer --answers spans --train squad.json --out quotes)";

void add_data(App& app, TrainAnswerFlags& f) {
  const char* group = "Data";
  app.add_option("--train", f.train,
                 "Stories, questions and answers; repeat it for several files")
      ->type_name("FILE")
      ->required()
      ->group(group);
  add_held_out_flags(app, f.valid, f.valid_share);
  app.add_choice<tasks::AnswerKind>("--answers", f.kind,
                                    {{"known", tasks::AnswerKind::kKnown},
                                     {"spans", tasks::AnswerKind::kSpans},
                                     {"choices", tasks::AnswerKind::kChoices}},
                                    "Where answers come from")
      ->group(group);
  add_folder_flags(app, f.learning);
}

using Data = AnswerExamples<Story>;

Data load_data(const TrainAnswerFlags& f) {
  Data data = load_answer_examples<Story>(
      f, tasks::read_stories, [](const Story& story) {
        // By the first two sentences: the questions of a story fall on one
        // side.
        std::string key =
            story.sentences.empty() ? story.question : story.sentences.front();
        if (story.sentences.size() > 1) key += story.sentences[1];
        return key;
      });
  require(!f.support || std::any_of(data.training.begin(), data.training.end(),
                                    [](const Story& story) {
                                      return !story.support.empty();
                                    }),
          kTrainAnswer,
          "--support needs the numbers of supporting lines, and '",
          f.train.front(), "' has none");
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
  require(answers.size() >= 2, kTrainAnswer,
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
    texts.back().insert(texts.back().end(), story.support.begin(),
                        story.support.end());
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
  settings["--word-layers"] = std::to_string(f.word_layers);
  settings["--support"] = f.support ? "yes" : "no";
  settings["--blank-sentences"] = fmt::format("{}", f.blank_sentences);
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
  const TrainingFolder folder(f.learning, kTrainAnswer, ranks);
  const Data data = load_data(f);
  tasks::AnswererConfig config;
  config.answers = answers_of(data);
  config.max_words = f.max_words;
  config.word_layers = f.word_layers;
  config.support = f.support;
  config.blank_sentences = static_cast<float>(f.blank_sentences);
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

void add_known_flags(App& app, TrainAnswerFlags& f) {
  const char* group = "Options for known answers";
  app.add_option("--max-sentences", f.max_sentences,
                 "Read the last N sentences of a story")
      ->check(whole_between(1, 100000))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-words", f.max_words,
                 "Read the first N words of a sentence")
      ->check(whole_between(1, 100000))
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--word-layers", f.word_layers,
         "Layers over the words of a sentence, before they become one vector")
      ->check(whole_between(0, 1024))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--shared-layers", f.shared_layers,
               "All layers share their weights")
      ->group(group);
  app.add_flag("--support", f.support,
               "Learn from the numbers of supporting lines, too, which follow "
               "the answer in a .txt")
      ->group(group);
  app.add_option(
         "--blank-sentences", f.blank_sentences,
         "Probability of a blank sentence before each sentence in training")
      ->check(real_between(0, 0.95))
      ->capture_default_str()
      ->group(group);
  app.add_option("--smoothing", f.smoothing, "Label smoothing")
      ->check(real_between(0, 0.95))
      ->capture_default_str()
      ->group(group);
}

void add_window_flags(App& app, TrainAnswerFlags& f) {
  const char* group = "Options for spans and choices";
  app.add_option("--max-length", f.encoder.max_length,
                 "Tokens of an input: the question, the choice, and a window "
                 "of the context")
      ->check(whole_between(16, 100000))
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--token-dropout", f.token_dropout,
         "Share of the tokens replaced by the unknown token in training")
      ->check(real_between(0, 0.95))
      ->capture_default_str()
      ->group(group);
  app.add_option("--overlap", f.overlap,
                 "For spans: tokens that two windows share")
      ->check(whole_between(0, 100000))
      ->capture_default_str()
      ->group(group);
  app.add_option("--max-answer", f.max_answer,
                 "For spans: maximum number of tokens of an answer")
      ->check(whole_between(1, 100000))
      ->capture_default_str()
      ->group(group);
}

void refuse_flags_of_others(const App& app, tasks::AnswerKind kind) {
  using tasks::AnswerKind;
  struct Owned {
    const char* name;
    bool fits;
  };
  const bool known = kind == AnswerKind::kKnown;
  const bool spans = kind == AnswerKind::kSpans;
  for (const Owned& flag :
       {Owned{"--max-sentences", known}, Owned{"--max-words", known},
        Owned{"--word-layers", known}, Owned{"--shared-layers", known},
        Owned{"--support", known}, Owned{"--blank-sentences", known},
        Owned{"--smoothing", known}, Owned{"--max-length", !known},
        Owned{"--token-dropout", !known}, Owned{"--overlap", spans},
        Owned{"--max-answer", spans}}) {
    if (!flag.fits && app.given(flag.name)) {
      throw UsageError(fmt::format("{} does not go with --answers {}",
                                   flag.name,
                                   known   ? "known"
                                   : spans ? "spans"
                                           : "choices"));
    }
  }
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
  flags->encoder.max_length = 256;
  flags->encoder.positions = "sinusoidal";
  App* app = train.add_subcommand(
      "answer", "A model that answers questions about stories");
  app->footer(kFooter);
  add_data(*app, *flags);
  add_text_flags(*app, flags->text);
  add_layer_flags(*app, flags->encoder);
  add_known_flags(*app, *flags);
  add_window_flags(*app, *flags);
  add_learning_flags(*app, learning);
  return {app, [flags, app, &ranks] {
            refuse_flags_of_others(*app, flags->kind);
            if (flags->kind == tasks::AnswerKind::kKnown) {
              return run(*flags, ranks);
            }
            // Words have places there, not sentences.
            if (!app->given("--positions")) flags->encoder.positions = "rotary";
            if (flags->kind == tasks::AnswerKind::kSpans) {
              return train_spans(*flags, ranks);
            }
            train_choices(*flags, ranks);
          }};
}

}  // namespace regard::cli
