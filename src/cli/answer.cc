// SPDX-License-Identifier: Apache-2.0
// regard answer: questions about a story.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cli/bundled.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/screen.h"
#include "cli/usage_error.h"
#include "cli/weight_flags.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/tasks/answerer.h"
#include "regard/tasks/choice_answerer.h"
#include "regard/tasks/span_answerer.h"
#include "regard/text/lines.h"

namespace regard::cli {
namespace {

struct AnswerFlags {
  std::vector<std::string> questions;
  std::vector<std::string> choices;
  std::string model, context, input;
  bool score = false;
  bool json = false;
  ops::WeightStorage weights = ops::WeightStorage::kFloat32;
  int threads = 0;
};

constexpr const char* kFooter =
    R"(The story is a text file. For each question the output has the answer and its
probability, and below it the sentences with the largest shares of the
attention (attention rollout). For a model trained with --support it has the
sentences that support the answer, with their probabilities. --input answers
the questions of a file in the format of `regard train answer`; with --score it
prints the accuracy.

A model of spans quotes the text, which may be long: the quote, its score, and
below it the character at which it begins, and the text around it. With --score
it prints exact match and F1, as SQuAD's script counts them. A model of choices
needs one --choice for each of them, and prints the probability of each.

Examples:
  regard answer --context story.txt "Where is Ada?" "Who has the key?"
  regard answer --model babi --input qa1_test.txt --score
  regard answer --model quotes --context report.txt "Who wrote it?"
  regard answer --model exam --context text.txt --choice yes --choice no "Is it?"
)";

std::string read_context(const AnswerFlags& flags) {
  std::string text;
  for (const std::string& line : text::read_lines(flags.context)) {
    text += line + "\n";
  }
  require(!text::is_blank(text) && !tasks::split_sentences(text).empty(),
          "answer", "the story '", flags.context, "' is blank");
  check_words(flags.questions, "answer");
  check_words(flags.choices, "answer");
  return text;
}

std::vector<tasks::Story> stories_of(const AnswerFlags& flags) {
  const std::vector<std::string> sentences =
      tasks::split_sentences(read_context(flags));
  std::vector<tasks::Story> stories;
  for (const std::string& question : flags.questions) {
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
      Json sentence = {{"text", story.sentences[s]},
                       {"attention", answer.looked_at[s]}};
      if (!answer.support.empty()) sentence["support"] = answer.support[s];
      line["sentences"].push_back(std::move(sentence));
    }
    return print_written(line.dump() + "\n");
  }
  constexpr std::size_t kShown = 3;
  const std::vector<float>& share =
      answer.support.empty() ? answer.looked_at : answer.support;
  std::vector<std::size_t> order(story.sentences.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(
      order.begin(), order.end(),
      [&](std::size_t a, std::size_t b) { return share[a] > share[b]; });
  std::string out =
      fmt::format("{}\t{:.4f}\n", answer.text, answer.probability);
  for (std::size_t i = 0; i < std::min(kShown, order.size()); ++i) {
    out += fmt::format("  {:.3f}  {}\n", share[order[i]],
                       story.sentences[order[i]]);
  }
  print_written(out);
}

void need_questions(std::size_t count, const AnswerFlags& flags) {
  require(count > 0, "answer", "there are no questions in '", flags.input, "'");
}

void run_known(const AnswerFlags& flags, const std::string& folder) {
  const bool asks = !flags.questions.empty();
  const std::vector<tasks::Story> stories =
      asks ? stories_of(flags) : tasks::read_stories(flags.input);
  const tasks::Answerer model = tasks::Answerer::load(folder, flags.weights);
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
    print_written(flags.json ? Json{{"question", stories[i].question},
                                    {"answer", answers[i].text},
                                    {"probability", answers[i].probability}}
                                       .dump() +
                                   "\n"
                             : fmt::format("{}\t{:.4f}\n", answers[i].text,
                                           answers[i].probability));
  }
  if (!flags.score) return;
  need_questions(stories.size(), flags);
  const double accuracy =
      static_cast<double>(right) / static_cast<double>(stories.size());
  print(
      flags.json
          ? Json{{"questions", stories.size()}, {"accuracy", accuracy}}.dump() +
                "\n"
          : fmt::format("{} questions\naccuracy  {:.2f} %\n", stories.size(),
                        100 * accuracy));
}

// The number of characters of UTF-8.
std::int64_t characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
}

// What stands around a span, on one line, the span in brackets.
std::string around(const std::string& text, const tasks::Span& span) {
  constexpr std::int64_t kBytes = 40;
  const auto inside = [&](std::int64_t at) {
    return at > 0 && at < std::ssize(text) &&
           (static_cast<unsigned char>(text[static_cast<std::size_t>(at)]) &
            0xC0) == 0x80;
  };
  std::int64_t from = std::max<std::int64_t>(0, span.begin - kBytes);
  std::int64_t to = std::min(std::ssize(text), span.end + kBytes);
  while (inside(from)) --from;
  while (inside(to)) ++to;
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    std::string out = text.substr(static_cast<std::size_t>(begin),
                                  static_cast<std::size_t>(end - begin));
    std::replace(out.begin(), out.end(), '\n', ' ');
    return out;
  };
  return (from > 0 ? "..." : "") + part(from, span.begin) + "[" +
         part(span.begin, span.end) + "]" + part(span.end, to) +
         (to < std::ssize(text) ? "..." : "");
}

void run_spans(const AnswerFlags& flags, const std::string& folder) {
  const bool asks = !flags.questions.empty();
  std::vector<tasks::SpanQuestion> questions;
  if (asks) {
    const std::string context = read_context(flags);
    for (const std::string& question : flags.questions) {
      questions.push_back({context, question});
    }
  } else {
    questions = tasks::read_span_questions(flags.input);
  }
  const tasks::SpanAnswerer model =
      tasks::SpanAnswerer::load(folder, flags.weights);
  const auto spans = model.answer(questions, {.count = flags.threads});
  std::vector<std::string> said;
  std::vector<std::vector<std::string>> right;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const std::string& text = questions[i].context;
    const tasks::Span& span = spans[i];
    said.push_back(
        text.substr(static_cast<std::size_t>(span.begin),
                    static_cast<std::size_t>(span.end - span.begin)));
    right.push_back(questions[i].answers);
    if (flags.score) continue;
    const std::int64_t start = characters(
        std::string_view(text).substr(0, static_cast<std::size_t>(span.begin)));
    std::string line = said.back();
    std::replace(line.begin(), line.end(), '\n', ' ');
    if (flags.json) {
      print_written(Json{{"question", questions[i].question},
                         {"answer", said.back()},
                         {"score", span.score},
                         {"start", start}}
                        .dump() +
                    "\n");
    } else {
      print_written(fmt::format("{}\t{:.4f}\n", line, span.score));
      if (asks) {
        print_written(fmt::format("  at {}: {}\n", start, around(text, span)));
      }
    }
  }
  if (!flags.score) return;
  need_questions(questions.size(), flags);
  const tasks::SpanScore score = tasks::score_spans(said, right);
  print(flags.json
            ? Json{{"questions", score.questions},
                   {"exact_match", score.exact_match},
                   {"f1", score.f1}}
                      .dump() +
                  "\n"
            : fmt::format("{} questions\nexact match  {:.2f} %\nF1  {:.2f} %\n",
                          score.questions, 100 * score.exact_match,
                          100 * score.f1));
}

void run_choices(const AnswerFlags& flags, const std::string& folder) {
  const bool asks = !flags.questions.empty();
  std::vector<tasks::ChoiceQuestion> questions;
  if (asks) {
    if (flags.choices.size() < 2) {
      throw UsageError(
          "this model chooses among given answers: give at least two --choice");
    }
    const std::string context = read_context(flags);
    for (const std::string& question : flags.questions) {
      questions.push_back({context, question, flags.choices});
    }
  } else {
    questions = tasks::read_choice_questions(flags.input);
  }
  const tasks::ChoiceAnswerer model =
      tasks::ChoiceAnswerer::load(folder, flags.weights);
  const auto found = model.answer(questions, {.count = flags.threads});
  std::int64_t right = 0;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const tasks::ChoiceQuestion& question = questions[i];
    const auto best = static_cast<std::size_t>(
        std::max_element(found[i].begin(), found[i].end()) - found[i].begin());
    right += static_cast<std::int64_t>(best) == question.answer;
    if (flags.score) continue;
    if (flags.json) {
      print_written(Json{{"question", question.question},
                         {"answer", question.choices[best]},
                         {"probabilities", found[i]}}
                        .dump() +
                    "\n");
      continue;
    }
    print_written(
        fmt::format("{}\t{:.4f}\n", question.choices[best], found[i][best]));
    for (std::size_t c = 0; asks && c < question.choices.size(); ++c) {
      print_written(
          fmt::format("  {:.3f}  {}\n", found[i][c], question.choices[c]));
    }
  }
  if (!flags.score) return;
  need_questions(questions.size(), flags);
  const double accuracy =
      static_cast<double>(right) / static_cast<double>(questions.size());
  print(flags.json
            ? Json{{"questions", questions.size()}, {"accuracy", accuracy}}
                      .dump() +
                  "\n"
            : fmt::format("{} questions\naccuracy  {:.2f} %\n",
                          questions.size(), 100 * accuracy));
}

void run(const AnswerFlags& flags) {
  const bool asks = !flags.questions.empty();
  if (asks == !flags.input.empty() || asks != !flags.context.empty()) {
    throw UsageError("give --context and questions, or --input");
  }
  if (flags.score && asks) throw UsageError("--score goes with --input");
  if (!flags.choices.empty() && !asks) {
    throw UsageError("--choice goes with --context");
  }
  const std::string folder =
      flags.model.empty() ? bundled_model("stories") : flags.model;
  const tasks::AnswerKind kind = tasks::find_answer_kind(folder);
  if (!flags.choices.empty() && kind != tasks::AnswerKind::kChoices) {
    throw UsageError("--choice needs a model that was trained with choices");
  }
  if (flags.model.empty()) {
    std::fputs(
        "(using the tiny bundled model, trained on generated stories of Ada, "
        "Ben, Clara, David and Emma; --model names another)\n",
        stderr);
  }
  if (kind == tasks::AnswerKind::kSpans) return run_spans(flags, folder);
  if (kind == tasks::AnswerKind::kChoices) return run_choices(flags, folder);
  run_known(flags, folder);
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
         "--choice", flags->choices,
         "For a model of choices: one of the answers; repeat it for each")
      ->type_name("TEXT");
  app->add_option("--model", flags->model,
                  "Folder that `regard train answer` made; if not given, a "
                  "tiny bundled one for generated stories")
      ->type_name("FOLDER");
  app->add_option("--input", flags->input, "Stories and questions")
      ->type_name("FILE");
  app->add_flag("--score", flags->score, "Compare with the answers of --input");
  app->add_flag("--json", flags->json, "JSON");
  add_weights_flag(*app, flags->weights);
  app->add_option("--threads", flags->threads, "0: one per core")
      ->check(whole_between(0, 1024))
      ->capture_default_str();
  return {app, [flags] { run(*flags); }};
}

}  // namespace regard::cli
