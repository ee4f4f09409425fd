// SPDX-License-Identifier: Apache-2.0
// Questions with choices, as files have them and as the encoder reads them.
#include <algorithm>
#include <set>
#include <utility>

#include "io/quote.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/tasks/choice_answerer.h"
#include "regard/text/lines.h"
#include "tasks/choice_kinds.h"

namespace regard::tasks {
namespace {

constexpr const char* kWhere = "read_choice_questions";
using Tokens = std::vector<std::int32_t>;

// What stands in a text: its tokens, and which stand behind which.
class Known {
 public:
  explicit Known(std::span<const std::int32_t> text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == text::kUnknown) continue;
      tokens_.insert(text[i]);
      if (i > 0) pairs_.emplace(text[i - 1], text[i]);
    }
  }
  bool has(std::int32_t token) const { return tokens_.contains(token); }

  // Of each token of another text: 0 if it is not there, 1 if it is, 2 if it is
  // there beside the same neighbour.
  std::vector<int> matches(std::span<const std::int32_t> text) const {
    std::vector<int> found(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (!has(text[i])) continue;
      found[i] = std::max(found[i], 1);
      if (i > 0 && pairs_.contains({text[i - 1], text[i]})) {
        found[i - 1] = found[i] = 2;
      }
    }
    return found;
  }

 private:
  std::set<std::int32_t> tokens_;
  std::set<std::pair<std::int32_t, std::int32_t>> pairs_;
};

// Where the part of `size` tokens begins that has most of what is asked for,
// the first of equals.
std::size_t best_part(const std::vector<int>& wanted, std::size_t size) {
  std::size_t best = 0;
  int sum = 0, most = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    sum += wanted[i];
    if (i < size) {
      most = sum;
      continue;
    }
    sum -= wanted[i - size];
    if (sum > most) {
      most = sum;
      best = i + 1 - size;
    }
  }
  return best;
}

struct Encoder {
  const text::Tokenizer& tokenizer;
  std::int64_t max_length;

  Tokens tokens_of(const std::string& text, std::int64_t most) const {
    // A text of strangers: "</s>" in it is no special token.
    Tokens ids = tokenizer
                     .encode(text, {.add_special_tokens = false,
                                    .find_special_tokens = false})
                     .ids;
    if (most > 0 && std::ssize(ids) > most) {
      ids.resize(static_cast<std::size_t>(most));
    }
    return ids;
  }
};

// Kinds of a token:
//   0 to 5    of a choice: 2 * match in the context, + 1 if all choices have it
//   6 to 8    of the question: 6 + match in the context
//   9 to 14   of the context: 9 + 2 * match in the choice, + 1 if the question
//             has it
//   15        <s> and </s>
EncodedChoice encode_choice(const Tokens& choice, const Tokens& question,
                            const Tokens& context, const Known& shared,
                            std::int64_t max_length) {
  const Known in_context(context), in_choice(choice), in_question(question);
  EncodedChoice out;
  const auto add = [&](std::int32_t token, int kind) {
    out.tokens.push_back(token);
    out.kinds.push_back(kind);
  };
  add(text::kBegin, 15);
  std::vector<int> match = in_context.matches(choice);
  for (std::size_t i = 0; i < choice.size(); ++i) {
    add(choice[i], 2 * match[i] + (shared.has(choice[i]) ? 1 : 0));
  }
  add(text::kEnd, 15);
  match = in_context.matches(question);
  for (std::size_t i = 0; i < question.size(); ++i) {
    add(question[i], 6 + match[i]);
  }
  add(text::kEnd, 15);
  match = in_choice.matches(context);
  std::vector<int> wanted(context.size());
  for (std::size_t i = 0; i < context.size(); ++i) {
    wanted[i] = 2 * match[i] + (in_question.has(context[i]) ? 1 : 0);
  }
  const std::size_t room =
      static_cast<std::size_t>(max_length) - out.tokens.size();
  const std::size_t first = best_part(wanted, room);
  for (std::size_t i = first; i < std::min(first + room, context.size()); ++i) {
    add(context[i], 9 + wanted[i]);
  }
  return out;
}

}  // namespace

std::vector<ChoiceQuestion> read_choice_questions(
    const std::filesystem::path& path) {
  if (path.extension() != ".jsonl" && path.extension() != ".ndjson") {
    throw_parse_error(kWhere, "questions with choices are JSON Lines, and the ",
                      "name must end in .jsonl or .ndjson; it is '",
                      path.string(), "'");
  }
  std::vector<ChoiceQuestion> questions;
  std::int64_t line = 0;
  for (const std::string& text : text::read_lines(path)) {
    ++line;
    if (text::is_blank(text)) continue;
    const auto fail = [&](const auto&... parts) {
      throw_parse_error(kWhere, "'", path.string(), "', line ", line, ": ",
                        parts...);
    };
    const auto json = Json::parse_or_null(text);
    if (!json.is_object()) {
      fail("there must be one JSON object; got ", io::in_quotes(text));
    }
    const auto word = [&](const Json& value, const char* what) {
      if (!value.is_string() || text::is_blank(value.get<std::string>())) {
        fail(what, " must be a string that is not blank");
      }
      return value.get<std::string>();
    };
    for (const char* name : {"context", "question", "choices", "answer"}) {
      if (!json.contains(name)) {
        fail("the object must have the field '", name, "'");
      }
    }
    ChoiceQuestion question;
    question.line = line;
    question.context = word(json.at("context"), "the field 'context'");
    question.question = word(json.at("question"), "the field 'question'");
    if (!json.at("choices").is_array() || json.at("choices").size() < 2) {
      fail("the field 'choices' must be an array of two strings at least");
    }
    const std::string answer = word(json.at("answer"), "the field 'answer'");
    for (const auto& one : json.at("choices")) {
      question.choices.push_back(word(one, "a choice"));
      if (question.choices.back() == answer && question.answer < 0) {
        question.answer = std::ssize(question.choices) - 1;
      }
    }
    if (question.answer < 0) {
      fail("the answer must be one of the choices; it is ",
           io::in_quotes(answer));
    }
    questions.push_back(std::move(question));
  }
  return questions;
}

ChoiceData encode_choice_questions(std::span<const ChoiceQuestion> questions,
                                   const text::Tokenizer& tokenizer,
                                   const ChoiceAnswererConfig& config) {
  const Encoder encoder = {tokenizer, config.encoder.max_length};
  // A quarter for a choice, a quarter for the question, half for the context.
  const std::int64_t quarter =
      std::max<std::int64_t>(1, encoder.max_length / 4 - 1);
  ChoiceData data;
  for (const ChoiceQuestion& question : questions) {
    const Tokens asked = encoder.tokens_of(question.question, quarter);
    const Tokens context = encoder.tokens_of(question.context, 0);
    std::vector<Tokens> choices;
    for (const std::string& choice : question.choices) {
      choices.push_back(encoder.tokens_of(choice, quarter));
    }
    Tokens common = choices.front();
    for (const Tokens& choice : choices) {
      std::erase_if(common, [&](std::int32_t token) {
        return std::find(choice.begin(), choice.end(), token) == choice.end();
      });
    }
    const Known shared(common);
    bool cut = false;
    std::vector<EncodedChoice> encoded;
    for (const Tokens& choice : choices) {
      encoded.push_back(
          encode_choice(choice, asked, context, shared, encoder.max_length));
      cut = cut || choice.size() + asked.size() + context.size() + 3 >
                       encoded.back().tokens.size();
    }
    if (cut) ++data.cut;
    data.questions.push_back(std::move(encoded));
    data.answers.push_back(static_cast<std::int32_t>(question.answer));
  }
  return data;
}

}  // namespace regard::tasks
