// SPDX-License-Identifier: Apache-2.0
// regard answer: questions about a story.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "cli/bundled.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/screen.h"
#include "cli/usage_error.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/tasks/answerer.h"
#include "regard/text/lines.h"
#include "regard/text/utf8.h"

namespace regard::cli {
namespace {

struct AnswerFlags {
  std::vector<std::string> questions;
  std::string model, context, input;
  bool score = false;
  bool json = false;
  int threads = 0;
};

constexpr const char* kFooter =
    R"(The story is a text file. For each question there is the answer and its
probability, and below it the sentences that the model looked at most, with
their share of the attention (attention rollout). --input answers the questions
of a file as `regard train answer` reads it; with --score it says how many
answers are right.

Examples:
  regard answer --context story.txt "Where is Ada?" "Who has the key?"
  regard answer --model babi --input qa1_test.txt --score)";

std::vector<tasks::Story> stories_of(const AnswerFlags& flags) {
  std::string text;
  for (const std::string& line : text::read_lines(flags.context)) {
    text += line + "\n";
  }
  const std::vector<std::string> sentences = tasks::split_sentences(text);
  require(!sentences.empty(), "answer", "the story '", flags.context,
          "' is blank");
  std::vector<tasks::Story> stories;
  for (const std::string& question : flags.questions) {
    require(text::find_invalid_utf8(question) == std::string::npos, "answer",
            "a question must be UTF-8");
    stories.push_back({sentences, question});
  }
  return stories;
}

void show(const tasks::Story& story, const tasks::Answer& answer, bool json) {
  if (json) {
    Json line = {{"question", story.question},
                 {"answer", answer.text},
                 {"probability", answer.probability},
                 {"sentences", Json::array()}};
    for (std::size_t s = 0; s < story.sentences.size(); ++s) {
      line["sentences"].push_back(
          {{"text", story.sentences[s]}, {"attention", answer.looked_at[s]}});
    }
    return print(line.dump() + "\n");
  }
  constexpr std::size_t kShown = 3;
  std::vector<std::size_t> order(story.sentences.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) {
                     return answer.looked_at[a] > answer.looked_at[b];
                   });
  std::string out =
      fmt::format("{}\t{:.4f}\n", answer.text, answer.probability);
  for (std::size_t i = 0; i < std::min(kShown, order.size()); ++i) {
    out += fmt::format("  {:.3f}  {}\n", answer.looked_at[order[i]],
                       story.sentences[order[i]]);
  }
  print(out);
}

void run(const AnswerFlags& flags) {
  const bool asks = !flags.questions.empty();
  if (asks == !flags.input.empty() || asks != !flags.context.empty()) {
    throw UsageError("give --context and questions, or --input");
  }
  if (flags.score && asks) throw UsageError("--score goes with --input");
  const std::vector<tasks::Story> stories =
      asks ? stories_of(flags) : tasks::read_stories(flags.input);
  const tasks::Answerer model = tasks::Answerer::load(
      flags.model.empty() ? bundled_model("stories") : flags.model);
  if (flags.model.empty()) {
    std::fputs(
        "(the tiny model that comes with the program: it learnt from generated "
        "stories of Ada, Ben, Clara, David and Emma; --model names another)\n",
        stderr);
  }
  if (asks) {
    for (const tasks::Story& story : stories) {
      show(story, model.explain(story, {.count = flags.threads}), flags.json);
    }
    return;
  }
  const auto answers = model.answer(stories, {.count = flags.threads});
  std::int64_t right = 0;
  for (std::size_t i = 0; i < stories.size(); ++i) {
    right += answers[i].text == stories[i].answer;
    if (flags.score) continue;
    print(flags.json ? Json{{"question", stories[i].question},
                            {"answer", answers[i].text},
                            {"probability", answers[i].probability}}
                               .dump() +
                           "\n"
                     : fmt::format("{}\t{:.4f}\n", answers[i].text,
                                   answers[i].probability));
  }
  if (!flags.score) return;
  require(!stories.empty(), "answer", "there are no questions in '",
          flags.input, "'");
  const double accuracy =
      static_cast<double>(right) / static_cast<double>(stories.size());
  print(
      flags.json
          ? Json{{"questions", stories.size()}, {"accuracy", accuracy}}.dump() +
                "\n"
          : fmt::format("{} questions\naccuracy  {:.2f} %\n", stories.size(),
                        100 * accuracy));
}

}  // namespace

Command add_answer(App& program) {
  const auto flags = std::make_shared<AnswerFlags>();
  App* app = program.add_subcommand("answer", "Answer questions about a story");
  app->footer(kFooter);
  app->add_option("QUESTIONS", flags->questions, "What to ask")
      ->type_name("TEXT");
  app->add_option("--context", flags->context, "The story")->type_name("FILE");
  app->add_option(
         "--model", flags->model,
         "Folder that `regard train answer` made; if not given, a tiny "
         "one that knows generated stories")
      ->type_name("FOLDER");
  app->add_option("--input", flags->input, "Stories and questions")
      ->type_name("FILE");
  app->add_flag("--score", flags->score, "Compare with the answers of --input");
  app->add_flag("--json", flags->json, "JSON");
  app->add_option("--threads", flags->threads, "0: one for each core")
      ->check(whole_between(0, 1024))
      ->capture_default_str();
  return {app, [flags] { run(*flags); }};
}

}  // namespace regard::cli
