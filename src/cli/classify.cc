// SPDX-License-Identifier: Apache-2.0
// regard classify: what texts are.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/bundled.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/label_report.h"
#include "cli/screen.h"
#include "cli/standard_input.h"
#include "cli/text.h"
#include "cli/usage_error.h"
#include "cli/weight_flags.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/tasks/classification_score.h"
#include "regard/tasks/classifier.h"
#include "regard/text/lines.h"
#include "regard/text/table.h"

namespace regard::cli {
namespace {

struct ClassifyFlags {
  std::vector<std::string> texts;
  std::string model, input;
  std::string text_column = "text";
  std::string label_column = "label";
  std::int64_t top = 1;
  bool score = false;
  bool explain = false;
  bool json = false;
  ops::WeightStorage weights = ops::WeightStorage::kFloat32;
  int threads = 0;
};

constexpr const char* kFooter =
    R"(Texts come from the command line, from a file, or from standard input, one per
line. A file whose name ends in .tsv, .csv or .jsonl is a table with a column
`text`; in any other, each line is a text. The output has a line for each:
label, tab, probability; with --top K the K most likely labels. --explain shows
which words decided: how much less likely the label is without the word
(occlusion), and the word's share of the attention (attention rollout). --score
compares with the labels of a table and prints accuracy, macro F1 and the
confusion matrix, as scikit-learn computes them.

Examples:
  regard classify "The soup was cold, but the waiter was wonderful."
  regard classify --explain "I would not call it a good film."
  regard classify --model mails --input new.csv --top 3
  regard classify --model mails --input test.csv --score)";

using Labels = std::vector<tasks::LabelProbability>;

const std::string& name_of(const tasks::Classifier& model,
                           const tasks::LabelProbability& found) {
  return model.config().labels[static_cast<std::size_t>(found.label)];
}

Json text_in_json(const tasks::Classifier& model, const ClassifyFlags& flags,
                  const std::string& text, const Labels& found) {
  return {{"text", text},
          {"labels", json_of(found, model.config().labels, flags.top)}};
}

void explain(const tasks::Classifier& model, const ClassifyFlags& flags,
             const std::string& text) {
  const tasks::Explanation why = model.explain(text, {.count = flags.threads});
  if (flags.json) {
    Json line = text_in_json(model, flags, text, why.labels);
    line["words"] = Json::array();
    for (const tasks::WordWeight& word : why.words) {
      line["words"].push_back({{"word", word.word},
                               {"begin", word.begin},
                               {"occlusion", word.occlusion},
                               {"rollout", word.rollout}});
    }
    return print(line.dump() + "\n");
  }
  std::string out = line_of(why.labels, model.config().labels, flags.top);
  if (!why.words.empty()) {
    out +=
        fmt::format("  {:<24}{:>12}{:>12}\n", "word", "occlusion", "rollout");
  }
  for (const tasks::WordWeight& word : why.words) {
    constexpr int kCells = 24;
    constexpr double kBar = 20;  // cells of a weight of 1
    const auto length = static_cast<std::size_t>(
        std::clamp(kBar * std::abs(word.occlusion) + 0.5, 0.0, kBar));
    out += fmt::format("  {}{:>+12.4f}{:>12.4f}  {}\n",
                       fitted(word.word, kCells), word.occlusion, word.rollout,
                       std::string(length, word.occlusion < 0 ? '-' : '+'));
  }
  print(out);
}

void classify_all(const tasks::Classifier& model, const ClassifyFlags& flags,
                  std::span<const std::string> texts, Ranks& ranks) {
  if (flags.explain) {
    for (const std::string& text : texts) explain(model, flags, text);
    return;
  }
  const auto answer = [&](dist::Part share) {
    const auto part =
        texts.subspan(static_cast<std::size_t>(share.begin),
                      static_cast<std::size_t>(share.end - share.begin));
    const auto found = model.classify(part, {.count = flags.threads});
    std::string lines;
    for (std::size_t i = 0; i < part.size(); ++i) {
      lines += flags.json
                   ? text_in_json(model, flags, part[i], found[i]).dump() + "\n"
                   : line_of(found[i], model.config().labels, flags.top);
    }
    return lines;
  };
  print_answers(ranks.communicator(), std::ssize(texts),
                std::max<std::int64_t>(1, std::ssize(texts)), answer);
}

void score(const tasks::Classifier& model, const ClassifyFlags& flags) {
  const tasks::LabelledTexts data = tasks::read_labelled_texts(
      flags.input, flags.text_column, flags.label_column);
  require(data.size() > 0, "classify", "there are no texts in '", flags.input,
          "'");
  std::vector<std::string> said;
  for (const Labels& found :
       model.classify(data.texts, {.count = flags.threads})) {
    said.push_back(name_of(model, found.front()));
  }
  const auto result = tasks::score_labels(data.labels, said);
  print(flags.json ? json_of(result, "texts") : report(result, "text"));
}

std::vector<std::string> texts_of(const ClassifyFlags& flags) {
  if (!flags.texts.empty()) return flags.texts;
  if (flags.input.empty()) {
    return text::read_lines(standard_input(), "standard input");
  }
  if (!text::is_table(flags.input)) return text::read_lines(flags.input);
  return std::move(
      text::read_table(flags.input, std::vector{flags.text_column}).columns[0]);
}

void run(const ClassifyFlags& flags, Ranks& ranks) {
  if (!flags.input.empty() && !flags.texts.empty()) {
    throw UsageError("give texts or --input, not both");
  }
  if (flags.score && (flags.input.empty() || flags.explain || flags.top > 1)) {
    throw UsageError("--score goes with --input, without --explain and --top");
  }
  const bool table = !flags.input.empty() && text::is_table(flags.input);
  if (!table && flags.text_column != ClassifyFlags().text_column) {
    throw UsageError(
        "--text-column goes with a table as --input: .tsv, .csv or .jsonl");
  }
  if (ranks.launched() > 1 &&
      (flags.input.empty() || flags.score || flags.explain)) {
    throw UsageError(
        "several ranks share the lines of --input, without --score and "
        "--explain");
  }
  check_words(flags.texts, "classify");
  ranks.check_threads({.count = flags.threads});
  const tasks::Classifier model = tasks::Classifier::load(
      flags.model.empty() ? bundled_model("reviews") : flags.model,
      flags.weights);
  if (flags.model.empty()) {
    std::fputs(
        "(using the tiny bundled model, trained on generated reviews of "
        "restaurants, hotels, films and books; --model names another)\n",
        stderr);
  }
  if (flags.score) return score(model, flags);
  classify_all(model, flags, texts_of(flags), ranks);
}

}  // namespace

Command add_classify(App& program, Ranks& ranks) {
  const auto flags = std::make_shared<ClassifyFlags>();
  App* app = program.add_subcommand("classify", "Classify texts");
  app->footer(kFooter);
  app->add_option("TEXTS", flags->texts, "What to classify")->type_name("TEXT");
  app->add_option("--model", flags->model,
                  "Folder that `regard train classify` made; if not given, a "
                  "tiny bundled one for reviews")
      ->type_name("FOLDER");
  app->add_option("--input", flags->input, "Texts, one per line, or a table")
      ->type_name("FILE");
  app->add_option("--text-column", flags->text_column,
                  "Column of the texts in a table")
      ->capture_default_str();
  app->add_flag("--score", flags->score, "Compare with the labels of --input");
  app->add_option("--label-column", flags->label_column,
                  "With --score: column of the labels in the table")
      ->needs("--score")
      ->capture_default_str();
  app->add_option("--top", flags->top, "Labels shown per text")
      ->check(whole_between(1, 1000000))
      ->capture_default_str();
  app->add_flag("--explain", flags->explain, "Show which words decided");
  app->add_flag("--json", flags->json, "JSON, a line for each text");
  add_weights_flag(*app, flags->weights);
  app->add_option("--threads", flags->threads, "0: one per core")
      ->check(whole_between(0, 1024))
      ->capture_default_str();
  return {app, [flags, &ranks] { run(*flags, ranks); }, true};
}

}  // namespace regard::cli
