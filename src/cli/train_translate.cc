// SPDX-License-Identifier: Apache-2.0
#include "cli/train_translate.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cli/content_hash.h"
#include "cli/training_folder.h"
#include "cli/usage_error.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/nn/transformer.h"
#include "regard/tasks/example_task.h"
#include "regard/tasks/translation_task.h"
#include "regard/tasks/translator.h"
#include "regard/text/lines.h"
#include "regard/text/tokenizer.h"

namespace regard::cli {
namespace fs = std::filesystem;

namespace {

using tasks::TranslationData;

constexpr const char* kCommand = "train translate";

void check(const TrainTranslateFlags& f) {
  if (f.tsv.empty() == (f.src.empty() || f.tgt.empty()) ||
      (!f.tsv.empty() && !(f.src.empty() && f.tgt.empty()))) {
    throw UsageError("give --src and --tgt, or --tsv");
  }
  if (f.valid_src.empty() != f.valid_tgt.empty() ||
      (!f.valid_tsv.empty() && !f.valid_src.empty())) {
    throw UsageError("give --valid-src and --valid-tgt, or --valid-tsv");
  }
  check(f.learning);
  if (f.dim % f.heads != 0) {
    throw UsageError(fmt::format(
        "--heads must divide --dim; they are {} and {}", f.heads, f.dim));
  }
  if (f.both_directions && f.src_lang == f.tgt_lang) {
    throw UsageError("with --both-directions the languages need two names");
  }
}

struct Data {
  text::Pairs training;
  text::Pairs back;  // for the direction back alone
  text::Pairs held_out;
};

Data load_data(const TrainTranslateFlags& f) {
  Data data;
  data.training =
      f.tsv.empty() ? text::read_pairs(f.src, f.tgt) : text::read_tsv(f.tsv);
  if (!f.valid_tsv.empty()) {
    data.held_out = text::read_tsv(f.valid_tsv);
  } else if (!f.valid_src.empty()) {
    data.held_out = text::read_pairs(f.valid_src, f.valid_tgt);
  } else {
    auto split = tasks::split_pairs(data.training, f.valid_share);
    data.training = std::move(split.first);
    data.held_out = std::move(split.second);
  }
  require(!data.training.sources.empty(), kCommand,
          "there are no pairs to learn from in '",
          f.tsv.empty() ? f.src : f.tsv, "'");
  if (!f.back_tsv.empty()) data.back = text::read_tsv(f.back_tsv);
  return data;
}

tasks::Languages languages_of(const TrainTranslateFlags& f) {
  return {f.src_lang, f.tgt_lang, f.both_directions};
}

bool learns_pieces(const TrainTranslateFlags& f) {
  return f.begin_with.empty() && f.tokenizer.empty();
}

std::unique_ptr<text::Tokenizer> make_tokenizer(const TrainTranslateFlags& f,
                                                const Data& data) {
  if (!f.tokenizer.empty()) return text::load_tokenizer(f.tokenizer);
  std::vector<std::string> lines;
  for (const auto* side : {&data.training.sources, &data.training.targets,
                           &data.back.sources, &data.back.targets}) {
    for (const std::string& line : *side) {
      if (!text::is_blank(line)) lines.push_back(line);
    }
  }
  if (f.pieces == "words") {
    text::WordOptions options;
    options.tags = languages_of(f).tags();
    return text::make_word_tokenizer(lines, options);
  }
  text::SentencePieceOptions options;
  options.model =
      f.pieces == "bpe" ? text::PieceModel::kBpe : text::PieceModel::kUnigram;
  options.size = f.vocab;
  options.coverage = f.coverage;
  options.tags = languages_of(f).tags();
  return text::train_sentencepiece(lines, options);
}

bool have_same_pieces(const text::Tokenizer& a, const text::Tokenizer& b) {
  if (a.size() != b.size()) return false;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (a.piece(id) != b.piece(id)) return false;
  }
  return true;
}

// The one that the start of the run has written. It cannot change: the settings
// tell how it was learnt, but of --tokenizer they do not.
std::unique_ptr<text::Tokenizer> written_tokenizer(
    const TrainTranslateFlags& f, const TrainingFolder& folder) {
  auto written = text::load_tokenizer(folder.path());
  if (f.tokenizer.empty()) return written;
  const auto given = text::load_tokenizer(f.tokenizer);
  require(have_same_pieces(*written, *given), kCommand, "the training in '",
          folder.path().string(),
          "' goes on with the tokenizer that it began with; --tokenizer '",
          f.tokenizer, "' is another one");
  return written;
}

tasks::TranslatorConfig config_of(const TrainTranslateFlags& f,
                                  std::int64_t vocab) {
  tasks::TranslatorConfig config;
  config.languages = languages_of(f);
  nn::TransformerConfig& model = config.model;
  model.source_vocab = model.target_vocab = vocab;
  model.model_dim = f.dim;
  model.heads = f.heads;
  model.encoder_layers = f.encoder_layers;
  model.decoder_layers = f.decoder_layers;
  model.feed_forward_dim = f.ffn;
  model.activation = f.activation == "gelu"     ? nn::Activation::kGelu
                     : f.activation == "swiglu" ? nn::Activation::kSwiglu
                                                : nn::Activation::kRelu;
  model.norm_first = f.norm_first;
  // A norm after each block already ends with one.
  model.final_norm = f.norm_first;
  model.shared_embeddings = true;
  model.tied_output = true;
  return config;
}

// What a model that is trained further may change.
void set_regularisation(const TrainTranslateFlags& f,
                        nn::TransformerConfig& model) {
  model.dropout = static_cast<float>(f.dropout);
  model.attention_dropout = static_cast<float>(f.attention_dropout);
  model.activation_dropout = static_cast<float>(f.activation_dropout);
  model.label_smoothing = static_cast<float>(f.smoothing);
}

// What else the weights depend on, in plain words.
std::map<std::string, std::string> settings_of(
    const TrainTranslateFlags& f, const tasks::TranslatorConfig& config) {
  std::map<std::string, std::string> settings;
  if (learns_pieces(f)) {
    settings["--pieces"] = f.pieces;
    if (f.pieces != "words") {
      settings["--vocab"] = std::to_string(f.vocab);
      settings["--coverage"] = fmt::format("{}", f.coverage);
    }
  }
  const auto json = Json::parse(tasks::config_to_json(config));
  for (const char* part : {"languages", "model"}) {
    add_settings(json.at(part).dump(), settings);
  }
  return settings;
}

std::string name_of(const std::string& path) {
  return fs::path(path).filename().string();
}

std::string files_of(const TrainTranslateFlags& f) {
  std::string files =
      f.tsv.empty() ? name_of(f.src) + ", " + name_of(f.tgt) : name_of(f.tsv);
  if (!f.back_tsv.empty()) files += ", " + name_of(f.back_tsv);
  return files;
}

std::string card_of(const TrainTranslateFlags& f,
                    const tasks::TranslatorConfig& config,
                    const TrainingFolder::Outcome& outcome,
                    std::int64_t examples) {
  const nn::TransformerConfig& m = config.model;
  std::string begun;
  if (!f.begin_with.empty()) {
    begun =
        fmt::format("- Begun with: the model '{}'\n", name_of(f.begin_with));
  }
  return fmt::format(
             "# Translator: {} to {}{}\n\n"
             "Trained with `regard train translate`.\n\n"
             "- Data: {}; {} examples\n"
             "- Text: {} pieces ({})\n"
             "{}"
             "- Model: {} + {} layers, width {}, {} heads, feed-forward {}; {} "
             "parameters; dropout {}, smoothing {}\n",
             config.languages.source, config.languages.target,
             config.languages.both_directions ? ", and back" : "", files_of(f),
             examples, m.source_vocab,
             learns_pieces(f) ? f.pieces : "taken over", begun,
             m.encoder_layers, m.decoder_layers, m.model_dim, m.heads,
             m.feed_forward_dim, parameter_count(outcome.result.weights),
             f.dropout, f.smoothing) +
         learning_lines(f.learning, outcome, "piece") +
         "\n    regard translate --model FOLDER \"a sentence\"\n\n"
         "It knows nothing but its data, and is sure of itself even where it "
         "is wrong.\n";
}

}  // namespace

void add_settings(const std::string& part, const TranslationData& data,
                  std::map<std::string, std::string>& settings) {
  settings[part + " source text"] = tasks::summary_of(data.sources);
  settings[part + " target text"] = tasks::summary_of(data.targets);
}

void tell_data(const char* what, const TranslationData& data) {
  std::string text = fmt::format("{}: {} examples", what, data.size());
  if (data.empty > 0) text += fmt::format(", {} left out as blank", data.empty);
  if (data.overlong > 0) {
    text += fmt::format(", {} left out as too long", data.overlong);
  }
  if (data.unknown > 0) {
    text += fmt::format(", {} pieces unknown", data.unknown);
  }
  std::fprintf(stderr, "%s\n", text.c_str());
}

void run_train_translate(const TrainTranslateFlags& f, Ranks& ranks) {
  check(f);
  const TrainingFolder folder(f.learning, kCommand, ranks);
  std::optional<tasks::TranslatorFiles> start;
  if (!f.begin_with.empty()) {
    start = tasks::load_translator_files(f.begin_with);
  }
  const bool both_directions =
      start ? start->config.languages.both_directions : f.both_directions;
  if (!f.back_tsv.empty() && !both_directions) {
    throw UsageError("--back-tsv needs a model for both directions");
  }
  Data pairs = load_data(f);
  folder.create();
  // A run that goes on reads the tokenizer that its start has written. One that
  // came to no checkpoint may have had other settings.
  const bool goes_on = folder.goes_on();
  const auto tokenizer = goes_on ? written_tokenizer(f, folder)
                         : start ? std::move(start->tokenizer)
                                 : make_tokenizer(f, pairs);
  tasks::TranslatorConfig config =
      start ? start->config : config_of(f, tokenizer->size());
  set_regularisation(f, config.model);
  TranslationData training = tasks::encode_pairs(
      pairs.training, *tokenizer, config.languages, f.max_length);
  if (!f.back_tsv.empty()) {
    append(training,
           tasks::encode_pairs(pairs.back, *tokenizer, config.languages,
                               f.max_length, tasks::PairDirections::kBackOnly));
  }
  const TranslationData held_out = tasks::encode_pairs(
      pairs.held_out, *tokenizer, config.languages, f.max_length);
  pairs = {};  // the pieces are all that the training needs
  tell_data("training", training);
  tell_data("held out", held_out);
  require(training.size() > 0, kCommand, "no pair is left to learn from");
  nn::Transformer model =
      start ? nn::Transformer(config.model, std::move(start->weights))
            : nn::Transformer(config.model, f.learning.seed);
  model.set_threads({.count = f.learning.threads});
  std::fprintf(stderr, "%lld pieces, %lld parameters\n",
               static_cast<long long>(tokenizer->size()),
               static_cast<long long>(parameter_count(model.parameters())));
  std::map<std::string, std::string> settings = settings_of(f, config);
  add_settings("training", training, settings);
  add_settings("held-out", held_out, settings);
  if (start) {
    settings["--begin-with"] =
        fmt::format("weights (hash {})", content_hash(model.parameters()));
  }
  tasks::TranslationTask task(model, training, held_out);
  if (!goes_on && ranks.first()) tokenizer->save(folder.path());
  const TrainingFolder::Outcome outcome =
      folder.run(task, settings, "tokens", [&](const StateDict& weights) {
        tasks::save_translator(folder.path(), config, *tokenizer, weights,
                               f.learning.stored());
      });
  if (!ranks.first()) return;
  write_card(folder.path(), card_of(f, config, outcome, training.size()),
             kCommand);
}

}  // namespace regard::cli
