// SPDX-License-Identifier: Apache-2.0
// regard train classify: a classifier, from texts and their labels.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/checks.h"
#include "cli/encoder_flags.h"
#include "cli/labelled_data.h"
#include "cli/screen.h"
#include "cli/train.h"
#include "cli/training_folder.h"
#include "regard/core/error.h"
#include "regard/tasks/classification_score.h"
#include "regard/tasks/classifier.h"

namespace regard::cli {
namespace {

using tasks::ClassificationData;
using tasks::LabelledTexts;

constexpr const char* kCommand = "train classify";

struct TrainClassifyFlags {
  std::string train, valid;
  double valid_share = 0.1;
  std::string text_column = "text";
  std::string label_column = "label";
  TextFlags text;
  EncoderFlags encoder;
  double smoothing = 0.0;
  double token_dropout = 0.02;
  LearningFlags learning;
};

constexpr const char* kFooter =
    R"(A file of examples is a table with a column `text` and a column `label`, in
UTF-8; its name says what it is:
  .tsv    a header and fields with tabs between them:   text<TAB>label
                                                        I loved it.<TAB>good
  .csv    the same with commas and quotes:              "Oh, well.",bad
  .jsonl  an object per line:              {"text": "Oh, well.", "label": "bad"}
A line that is wrong is named, and nothing is trained. Without a file to
validate with, a share of the texts is held out, chosen by --seed and the texts
themselves, so that it is the same in every run.

The folder becomes a model for `regard classify`: config.json,
model.safetensors, the tokenizer, and a card, README.md. Its folder `training`
holds what --resume needs. Ctrl-C saves and ends, with the model as it is, once
there is a milestone. The same command gives the same bits, for any number of
threads, and whether it was stopped or not.

Examples:
  regard sample classify --out reviews
  regard train classify --train reviews/train.tsv --valid reviews/valid.tsv \
      --out reviews-model
  regard train classify --train mails.csv --label-column folder --out mails
  regard train classify --train t.jsonl --pieces bytes --max-length 4000 --out m)";

void add_data(App& app, TrainClassifyFlags& f) {
  const char* group = "Data";
  app.add_option("--train", f.train, "Texts and their labels")
      ->type_name("FILE")
      ->required()
      ->group(group);
  app.add_option("--valid", f.valid, "Others to validate with")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--valid-share", f.valid_share,
                 "Share to hold out where no file is given")
      ->capture_default_str()
      ->check(real_between(0, 0.9))
      ->group(group);
  app.add_option("--text-column", f.text_column, "Name of the texts' column")
      ->capture_default_str()
      ->group(group);
  app.add_option("--label-column", f.label_column, "Name of the labels' column")
      ->capture_default_str()
      ->group(group);
  add_folder_flags(app, f.learning);
}

void tell_data(const char* what, const ClassificationData& data) {
  std::string text = fmt::format("{}: {} texts", what, data.size());
  if (data.cut > 0) text += fmt::format(", {} cut at --max-length", data.cut);
  if (data.unknown > 0) {
    text += fmt::format(", {} pieces unknown", data.unknown);
  }
  std::fprintf(stderr, "%s\n", text.c_str());
}

std::map<std::string, std::string> settings_of(
    const TrainClassifyFlags& f, const tasks::ClassifierConfig& config,
    const ClassificationData& training, const ClassificationData& held_out) {
  std::map<std::string, std::string> settings;
  add_settings(f.text, settings);
  const auto json = nlohmann::json::parse(tasks::config_to_json(config));
  add_settings(json.at("encoder").dump(), settings);
  settings["--smoothing"] = fmt::format("{}", f.smoothing);
  settings["--token-dropout"] = fmt::format("{}", f.token_dropout);
  settings["training data"] =
      tasks::summary_of(training.texts, training.labels);
  settings["held-out data"] =
      tasks::summary_of(held_out.texts, held_out.labels);
  return settings;
}

// The held-out texts through the model as it was saved.
std::string held_out_lines(const std::filesystem::path& folder,
                           const LabelledTexts& held_out, int threads) {
  if (held_out.size() == 0) return "";
  const tasks::Classifier model = tasks::Classifier::load(folder);
  std::vector<std::string> said;
  for (const auto& found : model.classify(held_out.texts, {.count = threads})) {
    said.push_back(
        model.config().labels[static_cast<std::size_t>(found.front().label)]);
  }
  const auto score = tasks::score_labels(held_out.labels, said);
  return fmt::format(
      "Held out ({} texts): accuracy {:.2f} %, macro F1 {:.2f} %\n",
      score.examples, 100 * score.accuracy, 100 * score.macro_f1);
}

void run(const TrainClassifyFlags& f, Ranks& ranks) {
  check(f.learning);
  check(f.text);
  encoder_config(f.encoder, 1);
  const TrainingFolder folder(f.learning, kCommand, ranks);
  const LabelledData data =
      read_labelled_data({kCommand, "texts", f.train, f.valid, f.valid_share,
                          f.learning.seed, f.text_column, f.label_column});
  tasks::ClassifierConfig config;
  config.labels = data.labels;
  config.label_smoothing = static_cast<float>(f.smoothing);
  config.token_dropout = static_cast<float>(f.token_dropout);
  const bool goes_on = folder.goes_on();
  const auto tokenizer = goes_on ? text::load_tokenizer(folder.path())
                                 : make_tokenizer(f.text, data.training.texts);
  config.encoder = encoder_config(f.encoder, tokenizer->size());
  const ClassificationData training =
      tasks::encode_texts(data.training, *tokenizer, config);
  const ClassificationData held_out =
      tasks::encode_texts(data.held_out, *tokenizer, config);
  tell_data("training", training);
  tell_data("held out", held_out);
  tasks::ExampleTask task = tasks::make_classification_task(
      config, training, held_out, f.learning.seed,
      {.count = f.learning.threads});
  std::fprintf(stderr, "%lld pieces, %zu labels, %lld parameters\n",
               static_cast<long long>(tokenizer->size()), config.labels.size(),
               static_cast<long long>(parameter_count(task.parameters())));
  folder.create();
  if (!goes_on && ranks.first()) tokenizer->save(folder.path());
  const TrainingFolder::Outcome outcome =
      folder.run(task, settings_of(f, config, training, held_out), "examples",
                 [&](const StateDict& weights) {
                   tasks::save_classifier(folder.path(), config, *tokenizer,
                                          weights, f.learning.stored());
                 });
  if (!ranks.first()) return;
  const std::string score =
      held_out_lines(folder.path(), data.held_out, f.learning.threads);
  print(score);
  const nn::EncoderConfig& e = config.encoder;
  write_card(
      folder.path(),
      fmt::format("# Classifier\n\nTrained with `regard train classify`.\n\n"
                  "- Labels: {}\n- Data: {}; {} texts\n- Text: {} pieces ({})\n"
                  "- Model: {} layers, width {}, {} heads, feed-forward {}, "
                  "pooling {}; {} parameters; dropout {}\n",
                  fmt::join(config.labels, ", "),
                  std::filesystem::path(f.train).filename().string(),
                  training.size(), e.vocab, f.text.pieces, e.layers,
                  e.model_dim, e.heads, e.feed_forward_dim, f.encoder.pooling,
                  parameter_count(outcome.result.weights), e.dropout) +
          learning_lines(f.learning, outcome, "text") +
          (score.empty() ? "" : "- " + score) +
          "\n    regard classify --model FOLDER \"a text\"\n\n"
          "It knows nothing but its data, and is sure of itself even where it "
          "is wrong.\n",
      kCommand);
}

}  // namespace

Command add_train_classify(App& train, Ranks& ranks) {
  const auto flags = std::make_shared<TrainClassifyFlags>();
  // What a few thousand texts need.
  LearningFlags& learning = flags->learning;
  learning.updates = 1500;
  learning.schedule = "cosine";
  learning.rate = 0.001;
  learning.warmup = 100;
  learning.average = 1;
  learning.batch_tokens = 2048;
  App* app = train.add_subcommand("classify",
                                  "A classifier, from texts and their labels");
  app->footer(kFooter);
  add_data(*app, *flags);
  add_text_flags(*app, flags->text);
  add_encoder_flags(*app, flags->encoder);
  const auto share = [&](const char* name, double& value, const char* what) {
    app->add_option(name, value, what)
        ->check(real_between(0, 0.95))
        ->capture_default_str()
        ->group("Model");
  };
  share("--smoothing", flags->smoothing, "Label smoothing");
  share("--token-dropout", flags->token_dropout,
        "Tokens that are read as unknown");
  add_learning_flags(*app, learning);
  return {app, [flags, &ranks] { run(*flags, ranks); }};
}

}  // namespace regard::cli
