// SPDX-License-Identifier: Apache-2.0
// regard train summarize: a summarizer, from texts and their summaries.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/checks.h"
#include "cli/encoder_flags.h"
#include "cli/screen.h"
#include "cli/train.h"
#include "cli/train_translate.h"
#include "cli/training_folder.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/nn/transformer.h"
#include "regard/tasks/example_task.h"
#include "regard/tasks/score.h"
#include "regard/tasks/translation_task.h"
#include "regard/tasks/translator.h"

namespace regard::cli {
namespace {

using tasks::TranslationData;

constexpr const char* kCommand = "train summarize";

TextFlags usual_text() {
  TextFlags text;
  text.pieces = "unigram";
  text.vocab = 8000;
  return text;
}

struct TrainSummarizeFlags {
  std::string train, valid;
  double valid_share = 0.05;
  std::string text_column = "text";
  std::string summary_column = "summary";
  TextFlags text = usual_text();
  EncoderFlags layers;
  std::int64_t decoder_layers = 2;
  bool no_copy = false;
  double smoothing = 0.1;
  LearningFlags learning;
};

constexpr const char* kFooter =
    R"(A file of examples is a table with a column `text` and a column `summary`, in
UTF-8, in a format given by its extension:
  .tsv    a header and fields with tabs between them:   text<TAB>summary
                                 Ada: Tea? Ben: Yes!<TAB>Ada and Ben have tea.
  .csv    the same with commas and quotes; a text may have several lines:
                                 "Ada: Tea?
                                 Ben: Yes!","Ada and Ben have tea."
  .jsonl  an object per line:
             {"text": "Ada: Tea?\nBen: Yes!", "summary": "Ada and Ben have tea."}
An invalid line is an error that names the line. Without a validation file, a
share of the texts is held out, chosen by --seed and the texts themselves.

The model is an encoder-decoder Transformer with a copy mechanism
(pointer-generator, See et al., 2017): each token of a summary is generated from
the vocabulary or copied from the text by one more attention head, and a gate
learns which. So it can copy names that it has never seen. --no-copy turns this
off.

The folder becomes a model for `regard summarize`: config.json,
model.safetensors, the tokenizer, and a model card, README.md. Its folder
`training` holds what --resume needs. Ctrl-C saves and ends; once there is a
milestone, it also writes the model so far. The same command gives the same
bits, for any number of threads, also if it was stopped and resumed.

Examples:
  regard sample summarize --out dialogues
  regard train summarize --train dialogues/train.jsonl \
      --valid dialogues/valid.jsonl --out dialogues-model
  regard train summarize --train mails.csv --text-column body --out mails)";

void add_data(App& app, TrainSummarizeFlags& f) {
  const char* group = "Data";
  app.add_option("--train", f.train, "Texts and their summaries")
      ->type_name("FILE")
      ->required()
      ->group(group);
  add_held_out_flags(app, f.valid, f.valid_share);
  app.add_option("--text-column", f.text_column, "Name of the texts' column")
      ->capture_default_str()
      ->group(group);
  app.add_option("--summary-column", f.summary_column,
                 "Name of the summaries' column")
      ->capture_default_str()
      ->group(group);
  add_folder_flags(app, f.learning);
}

void add_model(App& app, TrainSummarizeFlags& f) {
  const char* group = "Model";
  add_layer_flags(app, f.layers);
  app.add_option("--decoder-layers", f.decoder_layers, "Layers of the decoder")
      ->check(whole_between(1, 1024))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--no-copy", f.no_copy, "No copy mechanism")->group(group);
  app.add_option("--max-length", f.layers.max_length,
                 "Maximum number of tokens of a text or summary; longer ones "
                 "are left out")
      ->check(whole_between(2, 1000000))
      ->capture_default_str()
      ->group(group);
  app.add_option("--smoothing", f.smoothing, "Label smoothing")
      ->check(real_between(0, 0.95))
      ->capture_default_str()
      ->group(group);
}

struct Data {
  text::Pairs training, held_out;
};

text::Pairs chosen(const text::Pairs& all,
                   const std::vector<std::int64_t>& numbers) {
  text::Pairs some;
  for (const std::int64_t number : numbers) {
    const auto i = static_cast<std::size_t>(number);
    some.sources.push_back(all.sources[i]);
    some.targets.push_back(all.targets[i]);
  }
  return some;
}

Data load_data(const TrainSummarizeFlags& f) {
  const auto read = [&](const std::string& file) {
    return tasks::read_pair_table(file, f.text_column, f.summary_column);
  };
  Data data;
  data.training = read(f.train);
  if (!f.valid.empty()) {
    data.held_out = read(f.valid);
  } else {
    const tasks::Split split = tasks::split_examples(
        data.training.sources, f.valid_share, f.learning.seed);
    data.held_out = chosen(data.training, split.held_out);
    data.training = chosen(data.training, split.training);
  }
  require(!data.training.sources.empty(), kCommand,
          "there are no texts to learn from in '", f.train, "'");
  return data;
}

// Lines, as they are read: SentencePiece takes a line end for a character.
std::vector<std::string> lines_of(const text::Pairs& pairs) {
  std::vector<std::string> lines = pairs.targets;
  for (const std::string& text : pairs.sources) {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end =
          std::min(text.find_first_of("\r\n", begin), text.size());
      if (end > begin) lines.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return lines;
}

tasks::TranslatorConfig config_of(const TrainSummarizeFlags& f,
                                  std::int64_t vocab) {
  tasks::TranslatorConfig config;
  config.languages = {"text", "summary", false};
  config.whole_texts = true;
  config.model =
      tasks::with_decoder(encoder_config(f.layers, vocab), f.decoder_layers);
  config.model.max_length = f.layers.max_length + 1;  // the end's piece
  config.model.copy = !f.no_copy;
  config.model.label_smoothing = static_cast<float>(f.smoothing);
  return config;
}

std::map<std::string, std::string> settings_of(
    const TrainSummarizeFlags& f, const tasks::TranslatorConfig& config,
    const TranslationData& training, const TranslationData& held_out) {
  std::map<std::string, std::string> settings;
  add_settings(f.text, settings);
  const auto json = Json::parse(tasks::config_to_json(config));
  add_settings(json.at("model").dump(), settings);
  settings["copy"] = f.no_copy ? "no" : "yes";
  add_settings("training", training, settings);
  add_settings("held-out", held_out, settings);
  return settings;
}

// The held-out texts through the model as it was saved. One that is too long
// has no summary, and counts for nothing.
std::string held_out_line(const TrainSummarizeFlags& f,
                          const std::filesystem::path& folder,
                          const text::Pairs& held_out) {
  if (held_out.sources.empty()) return "";
  const tasks::Translator model = tasks::Translator::load(folder);
  std::vector<std::string> texts = held_out.sources;
  for (std::string& text : texts) {
    if (std::ssize(tasks::encode_lines(model.tokenizer(), text)) >
        f.layers.max_length) {
      text.clear();
    }
  }
  std::vector<std::string> said;
  for (const auto& found :
       model.translate(texts, {.beam = 1,
                              .max_length = 128,
                              .threads = {.count = f.learning.threads}})) {
    said.push_back(found.front().text);
  }
  const tasks::RougeScore rouge = tasks::rouge(said, held_out.targets);
  return fmt::format(
      "Held out ({} texts, greedy): ROUGE-1 {:.2f}, ROUGE-2 {:.2f}, ROUGE-L "
      "{:.2f}\n",
      said.size(), rouge.rouge1.f1, rouge.rouge2.f1, rouge.rougeL.f1);
}

void run(const TrainSummarizeFlags& f, Ranks& ranks) {
  check(f.learning);
  check(f.text, usual_text());
  encoder_config(f.layers, 1);
  const TrainingFolder folder(f.learning, kCommand, ranks);
  const Data data = load_data(f);
  const auto tokenizer = folder.goes_on()
                             ? text::load_tokenizer(folder.path())
                             : make_tokenizer(f.text, lines_of(data.training));
  const tasks::TranslatorConfig config = config_of(f, tokenizer->size());
  const TranslationData training = tasks::encode_pairs(
      data.training, *tokenizer, config.languages, f.layers.max_length);
  const TranslationData held_out = tasks::encode_pairs(
      data.held_out, *tokenizer, config.languages, f.layers.max_length);
  tell_data("training", training);
  tell_data("held out", held_out);
  require(training.size() > 0, kCommand, "no text is left to learn from");
  nn::Transformer model(config.model, f.learning.seed);
  model.set_threads({.count = f.learning.threads});
  const std::int64_t parameters = parameter_count(model.parameters());
  std::fprintf(stderr, "%lld pieces, %lld parameters\n",
               static_cast<long long>(tokenizer->size()),
               static_cast<long long>(parameters));
  tasks::TranslationTask task(model, training, held_out);
  folder.create(*tokenizer);
  const TrainingFolder::Outcome outcome =
      folder.run(task, settings_of(f, config, training, held_out), "tokens",
                 [&](const StateDict& weights) {
                   tasks::save_translator(folder.path(), config, *tokenizer,
                                          weights, f.learning.stored());
                 });
  if (!ranks.first()) return;
  const nn::TransformerConfig& m = config.model;
  folder.finish(
      outcome, held_out_line(f, folder.path(), data.held_out),
      {"Summarizer",
       fmt::format(
           "- Data: {}; {} texts\n- Text: {} pieces ({})\n"
           "- Model: {} + {} layers, width {}, {} heads, feed-forward {}{}; {} "
           "parameters; dropout {}, smoothing {}\n",
           std::filesystem::path(f.train).filename().string(), training.size(),
           m.source_vocab, f.text.pieces, m.encoder_layers, m.decoder_layers,
           m.model_dim, m.heads, m.feed_forward_dim,
           m.copy ? ", one more head that copies" : "", parameters,
           f.layers.dropout, f.smoothing),
       "piece", "regard summarize --model FOLDER dialogue.txt",
       "It knows nothing but its data, and is sure of itself even where it "
       "is wrong."});
}

}  // namespace

Command add_train_summarize(App& train, Ranks& ranks) {
  const auto flags = std::make_shared<TrainSummarizeFlags>();
  flags->layers.ffn = 512;
  flags->layers.max_length = 1024;
  LearningFlags& learning = flags->learning;
  learning.updates = 5000;
  learning.schedule = "cosine";
  learning.rate = 0.001;
  learning.warmup = 500;
  learning.clip = 1;
  learning.average = 1;
  App* app = train.add_subcommand(
      "summarize", "A summarizer, from texts and their summaries");
  app->footer(kFooter);
  add_data(*app, *flags);
  add_text_flags(*app, flags->text);
  add_model(*app, *flags);
  add_learning_flags(*app, learning);
  return {app, [flags, &ranks] { run(*flags, ranks); }};
}

}  // namespace regard::cli
