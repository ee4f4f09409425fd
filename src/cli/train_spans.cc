// SPDX-License-Identifier: Apache-2.0
// regard train answer --answers spans: a model that quotes answers.
#include <fmt/format.h>

#include <cstdio>
#include <map>

#include "cli/train_answer.h"
#include "cli/training_folder.h"
#include "json/json.h"
#include "regard/tasks/span_answerer.h"

namespace regard::cli {
namespace {

using tasks::SpanData;
using tasks::SpanQuestion;

std::string summary_of(const SpanData& data) {
  std::vector<std::vector<std::int32_t>> texts;
  std::vector<std::int32_t> targets;
  for (const tasks::SpanWindow& window : data.windows) {
    texts.push_back(window.tokens);
    targets.push_back(static_cast<std::int32_t>(window.begin));
    targets.push_back(static_cast<std::int32_t>(window.end));
  }
  return tasks::summary_of(texts, targets);
}

void tell_data(const char* what, const SpanData& data) {
  std::string text = fmt::format("{}: {} questions, {} windows", what,
                                 data.questions, data.windows.size());
  if (data.unseen > 0) {
    text += fmt::format("; the answers of {} are in no window", data.unseen);
  }
  std::fprintf(stderr, "%s\n", text.c_str());
}

std::string held_out_line(const std::filesystem::path& folder,
                          const std::vector<SpanQuestion>& questions,
                          int threads) {
  if (questions.empty()) return "";
  const tasks::SpanAnswerer model = tasks::SpanAnswerer::load(folder);
  const auto spans = model.answer(questions, {.count = threads});
  std::vector<std::string> said;
  std::vector<std::vector<std::string>> right;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    said.push_back(questions[i].context.substr(
        static_cast<std::size_t>(spans[i].begin),
        static_cast<std::size_t>(spans[i].end - spans[i].begin)));
    right.push_back(questions[i].answers);
  }
  const tasks::SpanScore score = tasks::score_spans(said, right);
  return fmt::format("Held out ({} questions): exact match {:.2f}, F1 {:.2f}\n",
                     score.questions, 100 * score.exact_match, 100 * score.f1);
}

}  // namespace

void train_spans(const TrainAnswerFlags& f, Ranks& ranks) {
  check(f.learning);
  check(f.text);
  encoder_config(f.encoder, 1);
  const TrainingFolder folder(f.learning, kTrainAnswer, ranks);
  const auto data = load_answer_examples<SpanQuestion>(
      f, tasks::read_span_questions,
      [](const SpanQuestion& question) { return question.context; });
  std::vector<std::string> texts;
  for (const SpanQuestion& question : data.training) {
    texts.push_back(question.question);
    // Questions of one text come one after the other.
    if (texts.size() < 2 || texts[texts.size() - 2] != question.context) {
      texts.push_back(question.context);
    }
  }
  const auto tokenizer = folder.goes_on() ? text::load_tokenizer(folder.path())
                                          : make_tokenizer(f.text, texts);
  tasks::SpanAnswererConfig config;
  config.encoder = encoder_config(f.encoder, tokenizer->size());
  config.overlap = f.overlap;
  config.max_answer = f.max_answer;
  config.token_dropout = static_cast<float>(f.token_dropout);
  const SpanData training =
      tasks::encode_span_questions(data.training, *tokenizer, config);
  const SpanData held_out =
      tasks::encode_span_questions(data.held_out, *tokenizer, config);
  tell_data("training", training);
  tell_data("held out", held_out);
  tasks::ExampleTask task =
      tasks::make_span_task(config, training, held_out, f.learning.seed,
                            {.count = f.learning.threads});
  std::fprintf(stderr, "%lld pieces, %lld parameters\n",
               static_cast<long long>(tokenizer->size()),
               static_cast<long long>(parameter_count(task.parameters())));
  folder.create(*tokenizer);
  std::map<std::string, std::string> settings;
  add_settings(f.text, settings);
  const auto json = Json::parse(tasks::config_to_json(config));
  add_settings(json.at("encoder").dump(), settings);
  settings["--overlap"] = std::to_string(f.overlap);
  settings["--token-dropout"] = fmt::format("{}", f.token_dropout);
  settings["training data"] = summary_of(training);
  settings["held-out data"] = summary_of(held_out);
  const TrainingFolder::Outcome outcome =
      folder.run(task, settings, "windows", [&](const StateDict& weights) {
        tasks::save_span_answerer(folder.path(), config, *tokenizer, weights,
                                  f.learning.stored());
      });
  if (!ranks.first()) return;
  const nn::EncoderConfig& e = config.encoder;
  folder.finish(
      outcome, held_out_line(folder.path(), data.held_out, f.learning.threads),
      {"Answerer that quotes",
       fmt::format("- Data: {} questions, {} windows\n- Text: {} pieces ({})\n"
                   "- Model: {}, {} parameters; dropout {}; windows of {} "
                   "tokens\n",
                   training.questions, training.windows.size(), e.vocab,
                   f.text.pieces, size_text(e),
                   parameter_count(outcome.result.weights), e.dropout,
                   e.max_length),
       "window",
       "regard answer --model FOLDER --context text.txt \"a question?\"",
       "It knows nothing but its data, and always quotes something, "
       "whether the text has the answer or not: see the score."});
}

}  // namespace regard::cli
