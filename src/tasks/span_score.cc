// SPDX-License-Identifier: Apache-2.0
// Exact match and F1, as SQuAD has them.
#include <algorithm>
#include <map>
#include <sstream>

#include "regard/core/error.h"
#include "regard/tasks/span_answerer.h"
#include "regard/text/utf8.h"
#include "tasks/score_text.h"
#include "text/unicode.h"

namespace regard::tasks {
namespace {

// \w of Python, but for signs that are neither letters nor punctuation.
bool is_word(char32_t c) {
  if (c < 0x80) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '_';
  }
  return !text::is_white_space(c) && !text::is_punctuation(c) &&
         !text::is_other(c);
}

bool is_ascii_sign(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') ||
         (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

// 1. Small letters. 2. No ASCII punctuation. 3. No articles, where \b of a
// regular expression stands on both sides. 4. Words between blanks.
std::vector<std::string> words_of(const std::string& text) {
  std::u32string kept;
  for (const char32_t c : folded(text, {.lowercase = true})) {
    if (!is_ascii_sign(c)) kept.push_back(c);
  }
  std::vector<std::string> words(1);
  for (std::size_t i = 0; i < kept.size();) {
    std::size_t end = i;
    while (end < kept.size() && is_word(kept[end])) ++end;
    const std::u32string_view run(kept.data() + i, end - i);
    const bool article = run == U"a" || run == U"an" || run == U"the";
    for (const char32_t c : run) {
      if (!article) text::append_utf8(words.back(), c);
    }
    if (end < kept.size()) {
      if (is_space(kept[end]) || article) words.emplace_back();
      if (!is_space(kept[end])) text::append_utf8(words.back(), kept[end]);
      ++end;
    } else if (article) {
      words.emplace_back();
    }
    i = end;
  }
  std::erase_if(words, [](const std::string& word) { return word.empty(); });
  return words;
}

double f1_of(const std::vector<std::string>& answer,
             const std::vector<std::string>& right) {
  std::map<std::string, std::int64_t> left;
  for (const std::string& word : right) ++left[word];
  std::int64_t common = 0;
  for (const std::string& word : answer) {
    const auto found = left.find(word);
    if (found == left.end() || found->second == 0) continue;
    --found->second;
    ++common;
  }
  if (common == 0) return 0;
  const double precision =
      static_cast<double>(common) / static_cast<double>(answer.size());
  const double recall =
      static_cast<double>(common) / static_cast<double>(right.size());
  return 2 * precision * recall / (precision + recall);
}

}  // namespace

SpanScore score_spans(std::span<const std::string> answers,
                      std::span<const std::vector<std::string>> right) {
  require(answers.size() == right.size() && !answers.empty(), "score_spans",
          "there must be an answer for each question, and one question at "
          "least; there are ",
          answers.size(), " and ", right.size());
  SpanScore score;
  score.questions = std::ssize(answers);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const std::vector<std::string> said = words_of(answers[i]);
    bool exact = false;
    double f1 = 0;
    for (const std::string& one : right[i]) {
      const std::vector<std::string> words = words_of(one);
      exact = exact || words == said;
      f1 = std::max(f1, f1_of(said, words));
    }
    score.exact_match += exact ? 1 : 0;
    score.f1 += f1;
  }
  score.exact_match /= static_cast<double>(score.questions);
  score.f1 /= static_cast<double>(score.questions);
  return score;
}

}  // namespace regard::tasks
