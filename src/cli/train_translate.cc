// SPDX-License-Identifier: Apache-2.0
#include "cli/train_translate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cli/screen.h"
#include "cli/stopped.h"
#include "cli/training_screen.h"
#include "cli/usage_error.h"
#include "io/atomic_file.h"
#include "regard/core/error.h"
#include "regard/nn/transformer.h"
#include "regard/tasks/translation_task.h"
#include "regard/tasks/translator.h"
#include "regard/text/lines.h"
#include "regard/text/tokenizer.h"
#include "regard/train/log.h"
#include "regard/train/training.h"
#include "train/checkpoint.h"

namespace regard::cli {
namespace fs = std::filesystem;

namespace {

using tasks::TranslationData;

void check(const TrainTranslateFlags& f) {
  if (f.tsv.empty() == (f.src.empty() || f.tgt.empty()) ||
      (!f.tsv.empty() && !(f.src.empty() && f.tgt.empty()))) {
    throw UsageError("give --src and --tgt, or --tsv");
  }
  if (f.valid_src.empty() != f.valid_tgt.empty() ||
      (!f.valid_tsv.empty() && !f.valid_src.empty())) {
    throw UsageError("give --valid-src and --valid-tgt, or --valid-tsv");
  }
  if (f.updates == 0 && f.epochs == 0) {
    throw UsageError("--updates or --epochs must set an end");
  }
  if (f.schedule == "cosine" && f.updates == 0) {
    throw UsageError("a cosine needs --updates, to know its end");
  }
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
  require(!data.training.sources.empty(), "train translate",
          "there are no pairs to learn from in '",
          f.tsv.empty() ? f.src : f.tsv, "'");
  return data;
}

tasks::Languages languages_of(const TrainTranslateFlags& f) {
  return {f.src_lang, f.tgt_lang, f.both_directions};
}

std::unique_ptr<text::Tokenizer> make_tokenizer(const TrainTranslateFlags& f,
                                                const text::Pairs& pairs) {
  std::vector<std::string> lines;
  for (const auto* side : {&pairs.sources, &pairs.targets}) {
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
  model.dropout = static_cast<float>(f.dropout);
  model.attention_dropout = static_cast<float>(f.attention_dropout);
  model.activation_dropout = static_cast<float>(f.activation_dropout);
  model.label_smoothing = static_cast<float>(f.smoothing);
  return config;
}

// The data, as far as a resumed run must see the same.
std::uint64_t hash_of(const TranslationData& data) {
  std::uint64_t hash = 0;
  for (const auto* side : {&data.sources, &data.targets}) {
    for (const std::vector<std::int32_t>& pieces : *side) {
      for (const std::int32_t piece : pieces) {
        hash = (hash ^ static_cast<std::uint64_t>(piece)) * 0x100000001B3u;
      }
      hash = (hash ^ 0xFFFFFFFFu) * 0x100000001B3u;
    }
  }
  return hash;
}

// For the message that the data of a resumed run are others.
std::string summary_of(const TranslationData& data) {
  return fmt::format("{} examples (hash {:016x})", data.size(), hash_of(data));
}

// What else the weights depend on, in plain words.
std::map<std::string, std::string> settings_of(
    const TrainTranslateFlags& f, const tasks::TranslatorConfig& config) {
  std::map<std::string, std::string> settings = {{"--pieces", f.pieces}};
  if (f.pieces != "words") {
    settings["--vocab"] = std::to_string(f.vocab);
    settings["--coverage"] = fmt::format("{}", f.coverage);
  }
  const auto json = nlohmann::json::parse(tasks::config_to_json(config));
  for (const char* part : {"languages", "model"}) {
    for (const auto& [key, value] : json.at(part).items()) {
      std::string name = key;
      std::replace(name.begin(), name.end(), '_', ' ');
      settings[name] =
          value.is_string() ? value.get<std::string>() : value.dump();
    }
  }
  return settings;
}

train::TrainingOptions options_of(const TrainTranslateFlags& f) {
  train::TrainingOptions o;
  o.seed = f.seed;
  o.max_updates = f.updates;
  o.max_epochs = f.epochs;
  o.batch_tokens = f.batch_tokens;
  o.accumulate = f.accumulate;
  o.adam.beta1 = static_cast<float>(f.beta1);
  o.adam.beta2 = static_cast<float>(f.beta2);
  o.adam.weight_decay = static_cast<float>(f.weight_decay);
  o.schedule.kind = f.schedule == "cosine" ? train::ScheduleKind::kCosine
                    : f.schedule == "constant"
                        ? train::ScheduleKind::kConstant
                        : train::ScheduleKind::kInverseSqrt;
  o.schedule.peak = f.rate;
  o.schedule.warmup = f.warmup;
  if (f.schedule == "cosine") o.schedule.total = f.updates;
  o.clip = f.clip;
  o.milestone = f.validate_every;
  o.patience = f.patience;
  o.average = f.average;
  o.checkpoint_seconds = f.checkpoint_every;
  o.threads = {.count = f.threads};
  return o;
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

const char* reason(train::Ending ending) {
  switch (ending) {
    case train::Ending::kUpdates:
      return "the number of updates is reached";
    case train::Ending::kEpochs:
      return "the number of epochs is reached";
    case train::Ending::kPatience:
      return "the held-out loss no longer falls";
    case train::Ending::kStopped:
      return "stopped";
  }
  return "";
}

double best_loss(const train::RunHistory& history) {
  double best = std::nan("");
  for (const train::MilestoneReport& milestone : history.milestones) {
    if (milestone.best) best = milestone.likelihood;
  }
  return best;
}

std::int64_t parameter_count(const StateDict& weights) {
  std::int64_t count = 0;
  for (const auto& [name, tensor] : weights) count += tensor.size();
  return count;
}

std::string name_of(const std::string& path) {
  return fs::path(path).filename().string();
}

// README.md of the model, unless the user has written one.
void write_card(const TrainTranslateFlags& f,
                const tasks::TranslatorConfig& config,
                const train::TrainingResult& result,
                const train::RunHistory& history, std::int64_t examples) {
  const fs::path path = fs::path(f.out) / "README.md";
  if (fs::exists(path)) return;
  const nn::TransformerConfig& m = config.model;
  const double loss = best_loss(history);
  std::string text = fmt::format(
      "# Translator: {} to {}{}\n\nTrained with `regard train translate`.\n\n",
      f.src_lang, f.tgt_lang, f.both_directions ? ", and back" : "");
  text += fmt::format(
      "- Data: {}; {} examples\n"
      "- Text: {} pieces ({})\n"
      "- Model: {} + {} layers, width {}, {} heads, feed-forward {}; {} "
      "parameters\n"
      "- Training: {} updates of {} x {} tokens, learning rate {} ({}, "
      "{} warm-up), dropout {}, smoothing {}, seed {}; the mean of {} "
      "milestones\n"
      "{}\n",
      f.tsv.empty() ? name_of(f.src) + ", " + name_of(f.tgt) : name_of(f.tsv),
      examples, m.source_vocab, f.pieces, m.encoder_layers, m.decoder_layers,
      m.model_dim, m.heads, m.feed_forward_dim, parameter_count(result.weights),
      result.updates, f.accumulate, f.batch_tokens, f.rate, f.schedule,
      f.warmup, f.dropout, f.smoothing, f.seed, result.averaged,
      std::isnan(loss)
          ? ""
          : fmt::format("- Lowest held-out loss: {:.4f} a piece\n", loss));
  text +=
      "    regard translate --model FOLDER \"a sentence\"\n\n"
      "It knows nothing but its data, and is sure of itself even where it "
      "is wrong.\n";
  io::AtomicFile file(path, "train translate");
  file.write(text);
  file.commit();
}

void show_end(const train::RunHistory& history) {
  std::vector<std::pair<double, double>> training;
  std::vector<std::pair<double, double>> held_out;
  for (const train::UpdateReport& update : history.updates) {
    training.emplace_back(static_cast<double>(update.update),
                          update.likelihood);
  }
  for (const train::MilestoneReport& milestone : history.milestones) {
    if (!std::isfinite(milestone.likelihood)) continue;
    held_out.emplace_back(static_cast<double>(milestone.update),
                          milestone.likelihood);
  }
  print(draw_curve(training, held_out, standard_output(ColorWhen::kNever)));
}

}  // namespace

void run_train_translate(const TrainTranslateFlags& f) {
  check(f);
  const fs::path folder = f.out;
  const fs::path work = folder / "training";
  require(f.resume || !fs::exists(work), "train translate", "'", work.string(),
          "' holds a training already; go on with it by --resume, or choose "
          "another --out");
  const Data pairs = load_data(f);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw_io_error("train translate", "cannot make the folder '", f.out,
                   "': ", error.message());
  }
  // A run that goes on reads the tokenizer that its start has written. One that
  // came to no checkpoint may have had other settings.
  const bool goes_on = f.resume && fs::exists(train::checkpoint_path(work));
  const auto tokenizer = goes_on ? text::load_tokenizer(folder)
                                 : make_tokenizer(f, pairs.training);
  const tasks::TranslatorConfig config = config_of(f, tokenizer->size());
  const TranslationData training = tasks::encode_pairs(
      pairs.training, *tokenizer, config.languages, f.max_length);
  const TranslationData held_out = tasks::encode_pairs(
      pairs.held_out, *tokenizer, config.languages, f.max_length);
  tell_data("training", training);
  tell_data("held out", held_out);
  require(training.size() > 0, "train translate",
          "no pair is left to learn from");
  nn::Transformer model(config.model, f.seed);
  model.set_threads({.count = f.threads});
  std::fprintf(stderr, "%lld pieces, %lld parameters\n",
               static_cast<long long>(tokenizer->size()),
               static_cast<long long>(parameter_count(model.parameters())));
  train::TrainingOptions options = options_of(f);
  options.settings = settings_of(f, config);
  options.settings["training data"] = summary_of(training);
  options.settings["held-out data"] = summary_of(held_out);
  tasks::TranslationTask task(model, training, held_out);
  if (!goes_on) tokenizer->save(folder);
  TrainingScreen screen(f.updates);
  const StopOnSignal signals;
  const train::TrainingResult result = train::train(
      task, options, work,
      f.resume ? train::Start::kResume : train::Start::kNew, screen);
  screen.clear();
  const train::RunHistory history = train::read_log(work / "log.jsonl");
  const bool stopped = result.ending == train::Ending::kStopped;
  if (!stopped || !history.milestones.empty()) {
    tasks::save_translator(folder, config, *tokenizer, result.weights,
                           f.float16 ? DType::kFloat16 : DType::kFloat32);
  }
  if (stopped) {
    const std::string text = fmt::format(
        "stopped and saved after update {}; the same command with --resume "
        "goes on. {}\n",
        result.updates,
        history.milestones.empty()
            ? "There is no model before the first milestone"
            : "The model so far is in " + f.out);
    std::fputs(text.c_str(), stderr);
    throw Stopped{StopOnSignal::signal()};
  }
  write_card(f, config, result, history, training.size());
  show_end(history);
  print(fmt::format(
      "done after {} updates: {}. The model, the mean of {} "
      "milestones, is in {}\n",
      result.updates, reason(result.ending), result.averaged, f.out));
}

}  // namespace regard::cli
