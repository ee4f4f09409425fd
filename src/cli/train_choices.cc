// SPDX-License-Identifier: Apache-2.0
// regard train answer --answers choices: a model that chooses answers.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "cli/train_answer.h"
#include "cli/training_folder.h"
#include "json/json.h"
#include "regard/tasks/choice_answerer.h"

namespace regard::cli {
namespace {

using tasks::ChoiceData;
using tasks::ChoiceQuestion;

std::string summary_of(const ChoiceData& data) {
  std::vector<std::vector<std::int32_t>> texts;
  for (const auto& choices : data.questions) {
    for (const tasks::EncodedChoice& choice : choices) {
      texts.push_back(choice.tokens);
    }
  }
  return tasks::summary_of(texts, data.answers);
}

void tell_data(const char* what, const ChoiceData& data) {
  std::string text =
      fmt::format("{}: {} questions", what, data.questions.size());
  if (data.cut > 0) {
    text += fmt::format(", {} with texts of which not all is read", data.cut);
  }
  std::fprintf(stderr, "%s\n", text.c_str());
}

std::string held_out_line(const std::filesystem::path& folder,
                          const std::vector<ChoiceQuestion>& questions,
                          int threads) {
  if (questions.empty()) return "";
  const tasks::ChoiceAnswerer model = tasks::ChoiceAnswerer::load(folder);
  const auto found = model.answer(questions, {.count = threads});
  std::int64_t right = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    right +=
        std::max_element(found[i].begin(), found[i].end()) - found[i].begin() ==
        questions[i].answer;
  }
  return fmt::format("Held out ({} questions): {:.2f} % right\n",
                     questions.size(),
                     100.0 * static_cast<double>(right) /
                         static_cast<double>(questions.size()));
}

}  // namespace

void train_choices(const TrainAnswerFlags& f, Ranks& ranks) {
  check(f.learning);
  check(f.text);
  encoder_config(f.encoder, 1);
  const TrainingFolder folder(f.learning, kTrainAnswer, ranks);
  const auto data = load_answer_examples<ChoiceQuestion>(
      f, tasks::read_choice_questions,
      [](const ChoiceQuestion& question) { return question.context; });
  std::vector<std::string> texts;
  for (const ChoiceQuestion& question : data.training) {
    texts.push_back(question.context);
    texts.push_back(question.question);
    texts.insert(texts.end(), question.choices.begin(), question.choices.end());
  }
  const auto tokenizer = folder.goes_on() ? text::load_tokenizer(folder.path())
                                          : make_tokenizer(f.text, texts);
  tasks::ChoiceAnswererConfig config;
  config.encoder = encoder_config(f.encoder, tokenizer->size());
  config.encoder.pooling = nn::Pooling::kAttention;
  // Which words they are says less than whether they stand on both sides.
  config.encoder.embedding_scale = 1.0f;
  config.token_dropout = static_cast<float>(f.token_dropout);
  const ChoiceData training =
      tasks::encode_choice_questions(data.training, *tokenizer, config);
  const ChoiceData held_out =
      tasks::encode_choice_questions(data.held_out, *tokenizer, config);
  tell_data("training", training);
  tell_data("held out", held_out);
  tasks::ExampleTask task =
      tasks::make_choice_task(config, training, held_out, f.learning.seed,
                              {.count = f.learning.threads});
  std::fprintf(stderr, "%lld pieces, %lld parameters\n",
               static_cast<long long>(tokenizer->size()),
               static_cast<long long>(parameter_count(task.parameters())));
  folder.create(*tokenizer);
  std::map<std::string, std::string> settings;
  add_settings(f.text, settings);
  const auto json = Json::parse(tasks::config_to_json(config));
  add_settings(json.at("encoder").dump(), settings);
  settings["--token-dropout"] = fmt::format("{}", f.token_dropout);
  settings["training data"] = summary_of(training);
  settings["held-out data"] = summary_of(held_out);
  const TrainingFolder::Outcome outcome =
      folder.run(task, settings, "questions", [&](const StateDict& weights) {
        tasks::save_choice_answerer(folder.path(), config, *tokenizer, weights,
                                    f.learning.stored());
      });
  if (!ranks.first()) return;
  const nn::EncoderConfig& e = config.encoder;
  folder.finish(
      outcome, held_out_line(folder.path(), data.held_out, f.learning.threads),
      {"Answerer that chooses",
       fmt::format("- Data: {} questions\n- Text: {} pieces ({})\n"
                   "- Model: {}, {} parameters; dropout {}\n",
                   training.questions.size(), e.vocab, f.text.pieces,
                   size_text(e), parameter_count(outcome.result.weights),
                   e.dropout),
       "question", "regard answer --model FOLDER --input questions.jsonl",
       "It knows nothing but its data."});
}

}  // namespace regard::cli
