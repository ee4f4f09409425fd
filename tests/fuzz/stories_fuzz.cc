// SPDX-License-Identifier: Apache-2.0
// Any bytes are either refused with ParseError or stories whose sentences,
// questions and answers are not blank, and whose support is among them; the
// same bytes as questions with spans and choices.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "fuzz/folder.h"
#include "regard/core/error.h"
#include "regard/tasks/answerer.h"
#include "regard/tasks/choice_answerer.h"
#include "regard/tasks/span_answerer.h"
#include "regard/text/lines.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

namespace {

// Answers stand where they are said to stand.
void use_questions(std::string_view bytes, const char* name) {
  using namespace regard;
  static const fuzz::Folder folder;
  const std::filesystem::path path = folder.path() / name;
  std::ofstream(path, std::ios::binary) << bytes;
  try {
    for (const tasks::SpanQuestion& q : tasks::read_span_questions(path)) {
      if (q.context.compare(static_cast<std::size_t>(q.begin),
                            q.answers.at(0).size(), q.answers[0]) != 0) {
        std::abort();
      }
    }
  } catch (const ParseError&) {
  }
  try {
    for (const tasks::ChoiceQuestion& q : tasks::read_choice_questions(path)) {
      if (q.answer < 0 || q.answer >= std::ssize(q.choices)) std::abort();
    }
  } catch (const ParseError&) {
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::istringstream in(std::string(reinterpret_cast<const char*>(data), size));
  try {
    for (const regard::tasks::Story& story : regard::tasks::parse_babi(
             regard::text::read_lines(in, "stories.txt"), "stories.txt")) {
      if (story.question.empty() || story.answer.empty()) std::abort();
      for (const std::int64_t at : story.support) {
        if (at < 0 || at >= std::ssize(story.sentences)) std::abort();
      }
      for (const std::string& sentence : story.sentences) {
        if (sentence.empty()) std::abort();
        for (const std::string& part :
             regard::tasks::split_sentences(sentence)) {
          if (part.empty()) std::abort();
        }
      }
    }
  } catch (const regard::ParseError&) {
  }
  for (const char* name : {"a.json", "a.txt", "a.tsv", "a.jsonl"}) {
    use_questions({reinterpret_cast<const char*>(data), size}, name);
  }
  return 0;
}
