// SPDX-License-Identifier: Apache-2.0
// regard train classify: a classifier, from texts and their labels.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/checks.h"
#include "cli/content_hash.h"
#include "cli/encoder_flags.h"
#include "cli/labelled_data.h"
#include "cli/screen.h"
#include "cli/train.h"
#include "cli/training_folder.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/tasks/classification_score.h"
#include "regard/tasks/classifier.h"
#include "regard/tasks/pretrained_encoder.h"

namespace regard::cli {
namespace {

using tasks::ClassificationData;
using tasks::LabelledTexts;
using tasks::Truncation;

constexpr const char* kCommand = "train classify";

struct TrainClassifyFlags {
  std::string train, valid, from, begin_with;
  double valid_share = 0.1;
  std::string text_column = "text";
  std::string label_column = "label";
  TextFlags text;
  EncoderFlags encoder;
  std::string truncate = "end";
  double smoothing = 0.0;
  double token_dropout = 0.02;
  LearningFlags learning;
};

constexpr const char* kFooter =
    R"(A file of examples is a table with a column `text` and a column `label`, in
UTF-8, in a format given by its extension:
  .tsv    a header and fields with tabs between them:   text<TAB>label
                                                        I loved it.<TAB>good
  .csv    the same with commas and quotes:              "Oh, well.",bad
  .jsonl  an object per line:              {"text": "Oh, well.", "label": "bad"}
An invalid line is an error that names the line. Without a validation file, a
share of the texts is held out, chosen by --seed and the texts themselves, so
that it is the same in every run.

--from fine-tunes a pretrained encoder: a folder of Hugging Face or
sentence-transformers with BERT, RoBERTa or DistilBERT. Its tokenizer, sizes,
pooling and weights are used, with a linear layer on top, and its maximum length
if --max-length is not given. Other defaults are then: --epochs 4
--schedule linear --lr 0.0001 --warmup (a tenth of the updates)
--batch-tokens 1024 --weight-decay 0.01 --clip 1 --beta2 0.999
--attention-dropout 0.1.

--begin-with continues training a classifier of this program, on other texts
with the same labels. Its tokenizer, sizes, labels and weights are used; its
--max-length and --truncate, too, if they are not given.

The folder becomes a model for `regard classify`: config.json,
model.safetensors, the tokenizer, and a model card, README.md. Its folder
`training` holds what --resume needs. Ctrl-C saves and ends; once there is a
milestone, it also writes the model so far. The same command gives the same
bits, for any number of threads, also if it was stopped and resumed.

Examples:
  regard sample classify --out reviews
  regard train classify --train reviews/train.tsv --valid reviews/valid.tsv \
      --out reviews-model
  regard train classify --train mails.csv --label-column folder --out mails
  regard train classify --train mails.csv --label-column folder \
      --from all-MiniLM-L6-v2 --out mails-model
  regard train classify --train newer.csv --label-column folder \
      --begin-with mails-model --lr 0.0001 --out mails-model-2
  regard train classify --train t.jsonl --pieces bytes --max-length 4000 --out m)";

void add_data(App& app, TrainClassifyFlags& f) {
  const char* group = "Data";
  app.add_option("--train", f.train, "Texts and their labels")
      ->type_name("FILE")
      ->required()
      ->group(group);
  app.add_option("--from", f.from, "Fine-tune this pretrained encoder")
      ->type_name("FOLDER")
      ->group(group);
  app.add_option("--begin-with", f.begin_with,
                 "Continue training this classifier, with its tokenizer, "
                 "sizes, labels and weights")
      ->type_name("FOLDER")
      ->group(group);
  add_held_out_flags(app, f.valid, f.valid_share);
  app.add_option("--text-column", f.text_column, "Name of the texts' column")
      ->capture_default_str()
      ->group(group);
  app.add_option("--label-column", f.label_column, "Name of the labels' column")
      ->capture_default_str()
      ->group(group);
  add_folder_flags(app, f.learning);
}

std::string name_of(const std::filesystem::path& path) {
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

// What a pretrained encoder or a classifier has of its own.
const std::vector<std::string> kOfModel = {
    "--pieces",    "--vocab",     "--min-count", "--keep-case", "--coverage",
    "--layers",    "--dim",       "--heads",     "--ffn",       "--activation",
    "--norm-last", "--positions", "--pooling"};

// What it learns with where nothing else was asked for.
void set_fine_tuning(const App& app, TrainClassifyFlags& f) {
  const auto otherwise = [&app](const char* option, auto& value, auto good) {
    if (!app.given(option)) value = good;
  };
  LearningFlags& l = f.learning;
  if (!app.given("--updates") && !app.given("--epochs")) l.epochs = 4;
  otherwise("--updates", l.updates, 0);
  otherwise("--schedule", l.schedule, "linear");
  otherwise("--lr", l.rate, 1e-4);
  otherwise("--batch-tokens", l.batch_tokens, 1024);
  otherwise("--beta2", l.beta2, 0.999);
  otherwise("--weight-decay", l.weight_decay, 0.01);
  otherwise("--clip", l.clip, 1.0);
  otherwise("--attention-dropout", f.encoder.attention_dropout, 0.1);
  otherwise("--max-length", f.encoder.max_length, 0);
  f.token_dropout = 0;
}

// What the training starts from: a pretrained encoder, a classifier, or nothing
// but texts. Weights that are not there are drawn.
tasks::ClassifierFiles beginning(const TrainClassifyFlags& f, const App& app,
                                 const LabelledData& data,
                                 const TrainingFolder& folder) {
  tasks::ClassifierFiles start;
  if (!f.begin_with.empty()) {
    start = tasks::load_classifier_files(f.begin_with);
    if (app.given("--max-length")) {
      start.config.encoder.max_length = f.encoder.max_length;
    }
  } else {
    start.config.labels = data.labels;
  }
  if (!f.from.empty()) {
    tasks::PretrainedEncoder encoder =
        tasks::load_pretrained_encoder(f.from, f.encoder.max_length);
    start.config.encoder = encoder.config;
    start.config.special_tokens = true;
    start.tokenizer = std::move(encoder.tokenizer);
    start.weights = std::move(encoder.weights);
  }
  if (start.tokenizer == nullptr) {
    start.tokenizer = folder.goes_on()
                          ? text::load_tokenizer(folder.path())
                          : make_tokenizer(f.text, data.training.texts);
    start.config.encoder = encoder_config(f.encoder, start.tokenizer->size());
  }
  if (f.begin_with.empty() || app.given("--truncate")) {
    start.config.truncation = f.truncate == "start"    ? Truncation::kStart
                              : f.truncate == "middle" ? Truncation::kMiddle
                                                       : Truncation::kEnd;
  }
  nn::EncoderConfig& encoder = start.config.encoder;
  encoder.dropout = static_cast<float>(f.encoder.dropout);
  encoder.attention_dropout = static_cast<float>(f.encoder.attention_dropout);
  encoder.activation_dropout = static_cast<float>(f.encoder.activation_dropout);
  start.config.label_smoothing = static_cast<float>(f.smoothing);
  start.config.token_dropout = static_cast<float>(f.token_dropout);
  return start;
}

const char* name_of(nn::Pooling pooling) {
  return pooling == nn::Pooling::kFirst       ? "first"
         : pooling == nn::Pooling::kAttention ? "attention"
                                              : "mean";
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
    const ClassificationData& training, const ClassificationData& held_out,
    const std::string& weights_hash) {
  std::map<std::string, std::string> settings;
  if (!f.from.empty()) {
    settings["weights of --from"] = weights_hash;
  } else if (!f.begin_with.empty()) {
    settings["weights of --begin-with"] = weights_hash;
  } else {
    add_settings(f.text, settings);
  }
  const auto json = Json::parse(tasks::config_to_json(config));
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

void run(TrainClassifyFlags f, const App& app, Ranks& ranks) {
  const bool fine_tunes = !f.from.empty();
  if (fine_tunes) set_fine_tuning(app, f);
  check(f.learning);
  check(f.text);
  if (!fine_tunes) encoder_config(f.encoder, 1);
  const TrainingFolder folder(f.learning, kCommand, ranks);
  const LabelledData data =
      read_labelled_data({kCommand, "texts", f.train, f.valid, f.valid_share,
                          f.learning.seed, f.text_column, f.label_column});
  tasks::ClassifierFiles start = beginning(f, app, data, folder);
  const tasks::ClassifierConfig& config = start.config;
  const text::Tokenizer* tokenizer = start.tokenizer.get();
  const ClassificationData training =
      tasks::encode_texts(data.training, *tokenizer, config);
  const ClassificationData held_out =
      tasks::encode_texts(data.held_out, *tokenizer, config);
  tell_data("training", training);
  tell_data("held out", held_out);
  tasks::ExampleTask task = tasks::make_classification_task(
      config, training, held_out, f.learning.seed,
      {.count = f.learning.threads});
  std::string weights_hash;
  if (!start.weights.empty()) {
    weights_hash = content_hash(start.weights);
    task.begin_with(std::move(start.weights));
  }
  if (fine_tunes && !app.given("--warmup")) {
    f.learning.warmup = update_count(f.learning, task.lengths()) / 10;
  }
  std::fprintf(stderr, "%lld pieces, %zu labels, %lld parameters\n",
               static_cast<long long>(tokenizer->size()), config.labels.size(),
               static_cast<long long>(parameter_count(task.parameters())));
  folder.create(*tokenizer);
  const TrainingFolder::Outcome outcome =
      folder.run(task, settings_of(f, config, training, held_out, weights_hash),
                 "examples", [&](const StateDict& weights) {
                   tasks::save_classifier(folder.path(), config, *tokenizer,
                                          weights, f.learning.stored());
                 });
  if (!ranks.first()) return;
  const nn::EncoderConfig& e = config.encoder;
  const std::string model = f.from + f.begin_with;  // one of them, or neither
  const std::string pieces =
      model.empty() ? f.text.pieces : "of " + name_of(model);
  folder.finish(
      outcome, held_out_lines(folder.path(), data.held_out, f.learning.threads),
      {"Classifier",
       fmt::format("- Labels: {}\n- Data: {}; {} texts\n- Text: {} pieces "
                   "({})\n- Model: {}, pooling {}; {} parameters; dropout {}\n",
                   fmt::join(config.labels, ", "), name_of(f.train),
                   training.size(), e.vocab, pieces, size_text(e),
                   name_of(e.pooling), parameter_count(outcome.result.weights),
                   e.dropout),
       "text", "regard classify --model FOLDER \"a text\"",
       "It knows nothing but its data, and is sure of itself even where it "
       "is wrong."});
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
  app->add_option("--truncate", flags->truncate,
                  "Which part of a longer text is dropped: its end, its start, "
                  "or its middle (after a quarter of --max-length)")
      ->check(member_of({"end", "start", "middle"}))
      ->capture_default_str()
      ->group("Model");
  share("--smoothing", flags->smoothing, "Label smoothing");
  share("--token-dropout", flags->token_dropout,
        "Share of the tokens replaced by the unknown token");
  add_learning_flags(*app, learning);
  app->exclude("--begin-with", kOfModel);
  std::vector<std::string> excluded = kOfModel;
  excluded.insert(excluded.end(), {"--begin-with", "--token-dropout"});
  app->exclude("--from", excluded);
  return {app, [flags, app, &ranks] { run(*flags, *app, ranks); }};
}

}  // namespace regard::cli
