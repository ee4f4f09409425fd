// SPDX-License-Identifier: Apache-2.0
// regard summarize: by a model that learnt to, or by a language model made for
// chats, which is told to.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/bundled.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/rouge_report.h"
#include "cli/sampling_flags.h"
#include "cli/screen.h"
#include "cli/usage_error.h"
#include "cli/weight_flags.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/tasks/chat.h"
#include "regard/tasks/model_kind.h"
#include "regard/tasks/quantize.h"
#include "regard/tasks/score.h"
#include "regard/tasks/translator.h"
#include "regard/text/lines.h"
#include "regard/text/utf8.h"

namespace regard::cli {
namespace {

constexpr const char* kInstruction =
    "Summarize the following text in one or two sentences.";

// For a language model alone.
struct ChatFlags {
  std::string tokenizer;
  std::string instruction = kInstruction;
  tasks::Sampling sampling;
};

// For a model that learnt to summarize alone.
struct SearchFlags {
  std::string input;
  std::string text_column = "text";
  std::string summary_column = "summary";
  bool score = false;
  std::int64_t beam = 4;
  std::optional<double> length_penalty;
  std::int64_t no_repeat_ngram = 0;
};

struct SummarizeFlags {
  std::vector<std::string> files;
  std::string model;
  std::int64_t max_tokens = 128;
  bool json = false;
  ops::WeightStorage weights = ops::WeightStorage::kAsStored;
  int threads = 0;
  ChatFlags chat;
  SearchFlags search;
};

constexpr const char* kFooter =
    R"(--model is a folder that `regard train summarize` made, a BART or T5 summarizer
of Hugging Face, or a chat model as for `regard chat`; its files show which.
Without it, a tiny bundled model is used, trained on generated dialogues of
people who make plans. The output has a line for each text; with several files,
the file's name and a tab come first.

A model that was trained to summarize uses beam search (--beam).
--no-repeat-ngram 3 never writes the same three tokens twice. --input summarizes
the texts of a table (.tsv, .csv or .jsonl with a column `text`); with --score
it prints ROUGE against the column `summary`.

A language model reads --instruction, a blank line and the text, and its answer
is the summary.

A text that is longer than the model's maximum length is an error.

Examples:
  regard summarize examples/dialogue.txt
  regard summarize --model dialogues-model --input test.jsonl --score
  regard summarize --model SmolLM2-135M-Instruct.gguf dialogue.txt \
      --instruction "Say in one sentence what they agree on.")";

std::string text_of(const std::string& file) {
  std::string text;
  for (const std::string& line : text::read_lines(file)) {
    text += (text.empty() ? "" : "\n") + line;
  }
  require(!text::is_blank(text), "summarize", "the text '", file, "' is blank");
  return text;
}

// What stands before a summary.
std::string name_of(const SummarizeFlags& flags, std::size_t i) {
  return flags.files.size() > 1 ? flags.files[i] + "\t" : std::string();
}

std::string line_of(const SummarizeFlags& flags, std::size_t i,
                    const std::string& summary) {
  if (!flags.json) return name_of(flags, i) + summary + "\n";
  Json line = {{"summary", summary}};
  if (!flags.files.empty()) line["file"] = flags.files[i];
  // The name of a file may be any bytes, and so may what a model writes.
  return line.dump({.replace_invalid = true}) + "\n";
}

void run_chat(const SummarizeFlags& flags) {
  const SearchFlags unset;
  const SearchFlags& given = flags.search;
  if (!given.input.empty() || given.score || given.beam != unset.beam ||
      given.length_penalty != unset.length_penalty ||
      given.no_repeat_ngram != unset.no_repeat_ngram) {
    throw UsageError(
        "--input, --score, --beam, --length-penalty and --no-repeat-ngram go "
        "with a model trained to summarize; this is a language model");
  }
  check_sampling_flags(flags.chat.sampling);
  require(text::find_invalid_utf8(flags.chat.instruction) == std::string::npos,
          "summarize", "the instruction must be UTF-8");
  std::vector<std::string> texts;
  for (const std::string& file : flags.files) texts.push_back(text_of(file));
  const tasks::LoadedModel loaded = tasks::load_language_model(
      flags.model,
      flags.chat.tokenizer.empty()
          ? std::nullopt
          : std::optional<std::filesystem::path>(flags.chat.tokenizer),
      flags.weights);
  tasks::Chat chat(loaded, {.max_tokens = flags.max_tokens,
                            .sampling = flags.chat.sampling,
                            .threads = {.count = flags.threads}});
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) chat.reset(std::string());
    const std::string told = flags.chat.instruction + "\n\n" + texts[i];
    if (flags.json) {
      print_written(
          line_of(flags, i, chat.say(told, [](std::string_view) {}).text));
      continue;
    }
    print_written(name_of(flags, i));
    chat.say(told, [](std::string_view more) { print_written(more); });
    print("\n");
  }
}

std::vector<std::string> summarize(const tasks::Translator& model,
                                   const SummarizeFlags& flags,
                                   std::span<const std::string> texts) {
  tasks::TranslateOptions options;
  options.beam = flags.search.beam;
  options.length_penalty = flags.search.length_penalty;
  options.max_length = flags.max_tokens;
  options.no_repeat_ngram = flags.search.no_repeat_ngram;
  options.threads = {.count = flags.threads};
  std::vector<std::string> summaries;
  Progress progress("summarizing", "texts");
  constexpr std::size_t kAtOnce = 64;
  while (summaries.size() < texts.size()) {
    const auto some = texts.subspan(
        summaries.size(), std::min(kAtOnce, texts.size() - summaries.size()));
    for (auto& found : model.translate(some, options)) {
      summaries.push_back(std::move(found.front().text));
    }
    progress.update(std::ssize(summaries), std::ssize(texts));
  }
  return summaries;
}

void run_search(const SummarizeFlags& flags, const std::string& folder) {
  const ChatFlags unset;
  const ChatFlags& given = flags.chat;
  if (!given.tokenizer.empty() || given.instruction != unset.instruction ||
      given.sampling.temperature != unset.sampling.temperature ||
      given.sampling.top_k != unset.sampling.top_k ||
      given.sampling.top_p != unset.sampling.top_p ||
      given.sampling.seed != unset.sampling.seed) {
    throw UsageError(
        "--tokenizer, --instruction and the options of sampling go with a "
        "language model; this one was trained to summarize");
  }
  text::Pairs table;
  if (flags.search.score) {
    table = tasks::read_pair_table(flags.search.input, flags.search.text_column,
                                   flags.search.summary_column);
    require(!table.sources.empty(), "summarize", "there are no texts in '",
            flags.search.input, "'");
  } else if (!flags.search.input.empty()) {
    table.sources =
        tasks::read_pair_table(flags.search.input, flags.search.text_column,
                               flags.search.text_column)
            .sources;
  }
  for (const std::string& file : flags.files) {
    table.sources.push_back(text_of(file));
  }
  const tasks::Translator model = tasks::Translator::load(
      folder, flags.weights == ops::WeightStorage::kAsStored
                  ? tasks::stored_weights(folder)
                  : flags.weights);
  if (flags.model.empty()) {
    std::fputs(
        "(using the tiny bundled model, trained on generated dialogues of "
        "people who make plans; --model names another)\n",
        stderr);
  }
  const std::vector<std::string> summaries =
      summarize(model, flags, table.sources);
  if (flags.search.score) {
    const tasks::RougeScore rouge = tasks::rouge(summaries, table.targets);
    return print(
        (flags.json ? "" : fmt::format("{} texts\n", summaries.size())) +
        rouge_report(rouge, flags.json));
  }
  for (std::size_t i = 0; i < summaries.size(); ++i) {
    print_written(line_of(flags, i, summaries[i]));
  }
}

void run(const SummarizeFlags& flags) {
  if (flags.files.empty() == flags.search.input.empty()) {
    throw UsageError("give files or --input");
  }
  if (flags.search.score && flags.search.input.empty()) {
    throw UsageError("--score goes with --input");
  }
  const std::string model =
      flags.model.empty() ? bundled_model("dialogues") : flags.model;
  switch (tasks::find_model_kind(model)) {
    case tasks::ModelKind::kLanguageModel:
      return run_chat(flags);
    case tasks::ModelKind::kTranslator:
      return run_search(flags, model);
    case tasks::ModelKind::kTextEncoder:
      break;
  }
  require(false, "summarize", "'", model,
          "' is a text encoder, which writes nothing; the model must be a "
          "summarizer or a language model");
}

void add_search_flags(App& app, SummarizeFlags& flags) {
  const char* group = "Models that were trained to summarize";
  SearchFlags& f = flags.search;
  app.add_option("--input", f.input, "A table of texts")
      ->type_name("FILE")
      ->group(group);
  app.add_flag("--score", f.score, "ROUGE against the summaries of --input")
      ->group(group);
  app.add_option("--text-column", f.text_column,
                 "With --input: name of the texts' column")
      ->needs("--input")
      ->capture_default_str()
      ->group(group);
  app.add_option("--summary-column", f.summary_column,
                 "With --score: name of the summaries' column")
      ->needs("--score")
      ->capture_default_str()
      ->group(group);
  app.add_option("--beam", f.beam, "Beam width; 1: greedy")
      ->check(whole_between(1, 1000))
      ->capture_default_str()
      ->group(group);
  app.add_option("--length-penalty", f.length_penalty,
                 "Scores are divided by length^PENALTY; without it, as the "
                 "model's config.json has it, or 1")
      ->type_name("PENALTY")
      ->check(real_between(-10, 10))
      ->group(group);
  app.add_option(
         "--no-repeat-ngram", f.no_repeat_ngram,
         "Never repeat a sequence of N tokens; 0: repetitions are allowed")
      ->type_name("N")
      ->check(whole_between(0, 1000))
      ->capture_default_str()
      ->group(group);
}

}  // namespace

Command add_summarize(App& program) {
  const auto flags = std::make_shared<SummarizeFlags>();
  App* app = program.add_subcommand("summarize", "Summarize texts");
  app->footer(kFooter);
  app->add_option("FILES", flags->files, "The texts")->type_name("FILE");
  app->add_option(
         "--model", flags->model,
         "Folder that `regard train summarize` made, a Hugging Face folder or "
         "GGUF; if not given, a tiny bundled one for generated dialogues")
      ->type_name("PATH");
  app->add_option("--max-tokens", flags->max_tokens,
                  "A summary has at most N tokens")
      ->type_name("N")
      ->check(whole_between(1, 1000000000))
      ->capture_default_str();
  app->add_flag("--json", flags->json, "JSON, a line for each text");
  add_search_flags(*app, *flags);
  const char* group = "Language models";
  app->add_option("--tokenizer", flags->chat.tokenizer,
                  "A tokenizer's folder or file, if the model has none")
      ->type_name("PATH")
      ->group(group);
  app->add_option("--instruction", flags->chat.instruction,
                  "The instruction before the text")
      ->type_name("TEXT")
      ->capture_default_str()
      ->group(group);
  add_sampling_flags(*app, flags->chat.sampling);
  add_weights_flag(*app, flags->weights);
  add_threads_flag(*app, flags->threads)->group("Machine");
  return {app, [flags] { run(*flags); }};
}

}  // namespace regard::cli
