// SPDX-License-Identifier: Apache-2.0
// Words as sacreBLEU's tokenizers none, 13a and zh cut them.
#include <algorithm>
#include <utility>

#include "regard/tasks/score.h"
#include "regard/text/utf8.h"
#include "tasks/score_text.h"
#include "text/lower_case.h"

namespace regard::tasks {

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 ||
         c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

namespace {

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_stop(char32_t c) { return c == '.' || c == ','; }

// All ASCII punctuation but ' , - .
bool is_punctuation(char32_t c) {
  return (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' ||
         (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

// What sacreBLEU takes for Chinese. Two of its ranges are meant for characters
// beyond 16 bits, but as they are written there they are U+2001 to U+2A6D and
// U+2F81 to U+2FA1; a score that shall be equal must do the same.
bool is_chinese(char32_t c) {
  constexpr std::pair<char32_t, char32_t> kRanges[] = {
      {0x2001, 0x2A6D}, {0x2E80, 0x2FDF}, {0x2FF0, 0x303F}, {0x3100, 0x312F},
      {0x31A0, 0x31BF}, {0x31C0, 0x31EF}, {0x3200, 0x33FF}, {0x3400, 0x4DB5},
      {0x4E00, 0x9FBB}, {0xF900, 0xFA2D}, {0xFA30, 0xFA6A}, {0xFA70, 0xFAD9},
      {0xFE10, 0xFE1F}, {0xFE30, 0xFE4F}, {0xFF00, 0xFFEF}};
  return std::any_of(
      std::begin(kRanges), std::end(kRanges),
      [c](const auto& range) { return range.first <= c && c <= range.second; });
}

void replace_all(std::u32string& text, std::u32string_view what,
                 std::u32string_view with) {
  for (std::size_t at = text.find(what); at != std::u32string::npos;
       at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
}

// Where a pair of neighbours matches, writes it with blanks, and goes on
// behind it: the pairs of a substitution never overlap.
template <typename Match, typename Write>
std::u32string rewritten(const std::u32string& text, const Match& matches,
                         const Write& write) {
  std::u32string out;
  out.reserve(text.size() * 2);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && matches(text[i], text[i + 1])) {
      write(out, text[i], text[i + 1]);
      ++i;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::u32string punctuation_apart(const std::u32string& line) {
  std::u32string text;
  for (const char32_t c : line) {
    if (is_punctuation(c)) {
      text.append({U' ', c, U' '});
    } else {
      text.push_back(c);
    }
  }
  // A stop is a word unless a digit stands before it and another behind it.
  text = rewritten(
      text, [](char32_t a, char32_t b) { return !is_digit(a) && is_stop(b); },
      [](std::u32string& out, char32_t a, char32_t b) {
        out.append({a, U' ', b, U' '});
      });
  text = rewritten(
      text, [](char32_t a, char32_t b) { return is_stop(a) && !is_digit(b); },
      [](std::u32string& out, char32_t a, char32_t b) {
        out.append({U' ', a, U' ', b});
      });
  // A dash behind a digit is a word.
  return rewritten(
      text, [](char32_t a, char32_t b) { return is_digit(a) && b == '-'; },
      [](std::u32string& out, char32_t a, char32_t b) {
        out.append({a, U' ', b, U' '});
      });
}

std::u32string cut_13a(std::u32string line) {
  replace_all(line, U"<skipped>", U"");
  replace_all(line, U"&quot;", U"\"");
  replace_all(line, U"&amp;", U"&");
  replace_all(line, U"&lt;", U"<");
  replace_all(line, U"&gt;", U">");
  return punctuation_apart(U' ' + line + U' ');
}

std::u32string cut_zh(const std::u32string& line) {
  std::u32string text;
  for (const char32_t c : line) {
    if (is_chinese(c)) {
      text.append({U' ', c, U' '});
    } else {
      text.push_back(c);
    }
  }
  return punctuation_apart(text);
}

std::u32string cut_rouge(const std::u32string& line) {
  std::u32string text = text::lower_case(line);
  for (char32_t& c : text) {
    if (!is_digit(c) && !(c >= 'a' && c <= 'z')) c = ' ';
  }
  return text;
}

std::u32string stripped(const std::u32string& line, bool at_front) {
  std::size_t begin = 0;
  std::size_t end = line.size();
  while (end > begin && is_space(line[end - 1])) --end;
  while (at_front && begin < end && is_space(line[begin])) ++begin;
  return line.substr(begin, end - begin);
}

}  // namespace

std::u32string folded(std::string_view line, const ScoreOptions& options) {
  std::u32string text = text::code_points(line);
  return options.lowercase ? text::lower_case(text) : text;
}

std::string score_words(std::string_view line, const ScoreOptions& options) {
  std::u32string text = stripped(folded(line, options), false);
  if (options.tokens == ScoreTokens::k13a) text = cut_13a(std::move(text));
  if (options.tokens == ScoreTokens::kZh) text = cut_zh(stripped(text, true));
  if (options.tokens == ScoreTokens::kRouge) text = cut_rouge(text);
  std::string words;
  bool blank = false;
  for (const char32_t c : text) {
    if (is_space(c)) {
      blank = !words.empty();
      continue;
    }
    if (blank) words.push_back(' ');
    blank = false;
    text::append_utf8(words, c);
  }
  return words;
}

}  // namespace regard::tasks
