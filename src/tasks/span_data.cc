// SPDX-License-Identifier: Apache-2.0
// Questions whose answers stand in a text, as files have them.
#include <algorithm>
#include <charconv>
#include <set>

#include "io/quote.h"
#include "io/read_file.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/tasks/answerer.h"
#include "regard/tasks/span_answerer.h"
#include "regard/text/table.h"
#include "tasks/span_windows.h"
#include "text/field.h"
#include "text/tokenizers.h"

namespace regard::tasks {
namespace {

constexpr const char* kWhere = "read_span_questions";

// The byte at which character `number` begins; npos if there is none.
std::size_t byte_of(const std::string& text, std::int64_t number) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (begins && number-- == 0) return i;
  }
  return std::string::npos;
}

// Where `answer` begins: at the character `start`, or, if that is negative,
// the first place that has it; npos if it is not there.
std::size_t find_answer(const std::string& context, const std::string& answer,
                        std::int64_t start) {
  if (start < 0) return context.find(answer);
  const std::size_t at = byte_of(context, start);
  const bool there = at != std::string::npos &&
                     context.compare(at, answer.size(), answer) == 0;
  return there ? at : std::string::npos;
}

std::vector<SpanQuestion> from_table(const std::filesystem::path& path) {
  std::vector<std::string> columns = {"context", "question", "answer"};
  const bool starts = text::has_column(path, "start");
  if (starts) columns.emplace_back("start");
  const text::Table table = text::read_table(path, columns);
  std::vector<SpanQuestion> questions;
  for (std::size_t i = 0; i < table.lines.size(); ++i) {
    const auto fail = [&](const auto&... parts) {
      throw_parse_error(kWhere, "'", path.string(), "', line ", table.lines[i],
                        ": ", parts...);
    };
    std::int64_t start = -1;
    if (starts) {
      const std::string& field = table.columns[3][i];
      const char* const end = field.data() + field.size();
      const auto read = std::from_chars(field.data(), end, start);
      if (read.ec != std::errc() || read.ptr != end || start < 0) {
        fail("start must be the number of a character, from 0 on; got ",
             io::in_quotes(field));
      }
    }
    const std::string& answer = table.columns[2][i];
    const std::size_t at = find_answer(table.columns[0][i], answer, start);
    if (at == std::string::npos) {
      fail("the context must have the answer ", io::in_quotes(answer),
           starts ? " at the character " + std::to_string(start) : "",
           "; it does not");
    }
    questions.push_back({table.columns[0][i],
                         table.columns[1][i],
                         {answer},
                         static_cast<std::int64_t>(at),
                         table.lines[i]});
  }
  return questions;
}

std::vector<SpanQuestion> from_babi(const std::filesystem::path& path) {
  std::vector<SpanQuestion> questions;
  for (const Story& story : read_stories(path)) {
    SpanQuestion question = {"", story.question, {story.answer}, 0, story.line};
    std::vector<std::size_t> begins;
    for (const std::string& sentence : story.sentences) {
      if (!question.context.empty()) question.context += ' ';
      begins.push_back(question.context.size());
      question.context += sentence;
    }
    std::vector<std::int64_t> order(story.support.rbegin(),
                                    story.support.rend());
    for (std::int64_t s = std::ssize(story.sentences) - 1; s >= 0; --s) {
      order.push_back(s);
    }
    const auto has = [&](std::int64_t s) {
      return story.sentences[static_cast<std::size_t>(s)].find(story.answer) !=
             std::string::npos;
    };
    const auto found = std::find_if(order.begin(), order.end(), has);
    if (found == order.end()) {
      throw_parse_error(kWhere, "'", path.string(), "', line ", story.line,
                        ": the story must have the answer ",
                        io::in_quotes(story.answer), "; it does not");
    }
    const auto at = static_cast<std::size_t>(*found);
    question.begin = static_cast<std::int64_t>(
        begins[at] + story.sentences[at].find(story.answer));
    questions.push_back(std::move(question));
  }
  return questions;
}

std::vector<SpanQuestion> from_squad(const std::filesystem::path& path) {
  const std::string where = std::string(kWhere) + ": '" + path.string() + "'";
  const auto json = text::parse_json(io::read_file(path, kWhere), where);
  std::vector<SpanQuestion> questions;
  text::Field(json, where)["data"].for_each([&](const text::Field& article) {
    article["paragraphs"].for_each([&](const text::Field& paragraph) {
      const std::string& context = paragraph["context"].text();
      paragraph["qas"].for_each([&](const text::Field& asked) {
        SpanQuestion question = {context, asked["question"].text()};
        question.line = std::ssize(questions) + 1;
        asked["answers"].for_each([&](const text::Field& answer) {
          const std::string& words = answer["text"].text();
          if (question.answers.empty()) {
            const std::int64_t start = answer["answer_start"].count();
            const std::size_t at = find_answer(context, words, start);
            if (words.empty() || at == std::string::npos) {
              answer.fail("must stand in the context at the character ", start,
                          "; it does not: ", io::in_quotes(words));
            }
            question.begin = static_cast<std::int64_t>(at);
          }
          question.answers.push_back(words);
        });
        if (question.answers.empty()) {
          asked.fail("must have an answer; questions without one (SQuAD 2) ",
                     "are not learnt");
        }
        questions.push_back(std::move(question));
      });
    });
  });
  return questions;
}

}  // namespace

std::vector<SpanQuestion> read_span_questions(
    const std::filesystem::path& path) {
  if (path.extension() == ".txt") return from_babi(path);
  return path.extension() == ".json" ? from_squad(path) : from_table(path);
}

SpanWindows make_windows(const SpanQuestion& question,
                         const text::Tokenizer& tokenizer,
                         const SpanAnswererConfig& config) {
  // Texts of strangers: "</s>" in them is no special token.
  text::EncodeOptions options;
  options.add_special_tokens = options.find_special_tokens = false;
  const std::int64_t most = config.encoder.max_length;
  std::vector<std::int32_t> head =
      tokenizer.encode(question.question, options).ids;
  // Half of what is read at once is left to the context.
  if (std::ssize(head) > most / 2 - 2) {
    head.resize(
        static_cast<std::size_t>(std::max<std::int64_t>(most / 2 - 2, 0)));
  }
  const std::set<std::int32_t> asked(head.begin(), head.end());
  head.insert(head.begin(), text::kBegin);
  head.push_back(text::kEnd);
  options.offsets = true;
  SpanWindows out;
  text::Encoding context = tokenizer.encode(question.context, options);
  out.offsets = std::move(context.offsets);
  out.first_place = std::ssize(head);
  const std::int64_t count = std::ssize(context.ids);
  const std::int64_t room = most - out.first_place;
  const std::int64_t step =
      std::max<std::int64_t>(room - config.overlap, (room + 1) / 2);
  for (std::int64_t first = 0;; first += step) {
    const std::int64_t end = std::min(first + room, count);
    SpanWindow window;
    window.tokens = head;
    window.kinds.assign(head.size(), 0);
    for (std::int64_t t = first; t < end; ++t) {
      const std::int32_t id = context.ids[static_cast<std::size_t>(t)];
      window.tokens.push_back(id);
      window.kinds.push_back(id != text::kUnknown && asked.contains(id) ? 2
                                                                        : 1);
    }
    out.windows.push_back(std::move(window));
    out.first_tokens.push_back(first);
    if (end == count) return out;
  }
}

SpanData encode_span_questions(std::span<const SpanQuestion> questions,
                               const text::Tokenizer& tokenizer,
                               const SpanAnswererConfig& config) {
  SpanData data;
  data.questions = std::ssize(questions);
  for (const SpanQuestion& question : questions) {
    require(!question.answers.empty(), "encode_span_questions",
            "a question must have an answer; that of line ", question.line,
            " has none");
    SpanWindows made = make_windows(question, tokenizer, config);
    const std::int64_t begin = question.begin;
    const std::int64_t end = begin + std::ssize(question.answers.front());
    // The tokens [first, last] that have a byte of the answer.
    std::int64_t first = -1, last = -1;
    for (std::int64_t t = 0; t < std::ssize(made.offsets); ++t) {
      const text::ByteRange& bytes = made.offsets[static_cast<std::size_t>(t)];
      if (bytes.end <= begin || bytes.begin >= end) continue;
      if (first < 0) first = t;
      last = t;
    }
    bool seen = false;
    for (std::size_t w = 0; w < made.windows.size(); ++w) {
      SpanWindow& window = made.windows[w];
      const std::int64_t shift = made.first_place - made.first_tokens[w];
      if (first >= made.first_tokens[w] &&
          last + shift < std::ssize(window.tokens)) {
        window.begin = first + shift;
        window.end = last + shift;
        seen = true;
      }
      data.windows.push_back(std::move(window));
    }
    if (!seen) ++data.unseen;
  }
  return data;
}

}  // namespace regard::tasks
