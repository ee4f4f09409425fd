// SPDX-License-Identifier: Apache-2.0
// Stories and questions, as files have them.
#include <charconv>
#include <map>
#include <sstream>

#include "io/quote.h"
#include "regard/core/error.h"
#include "regard/tasks/answerer.h"
#include "regard/text/lines.h"
#include "regard/text/table.h"

namespace regard::tasks {
namespace {

constexpr const char* kWhere = "read_stories";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// How many bytes the sign takes that ends a sentence here; 0 where none does.
std::size_t end_sign(std::string_view rest) {
  for (const std::string_view sign :
       {"\xE3\x80\x82", "\xEF\xBC\x81", "\xEF\xBC\x9F"}) {
    if (rest.starts_with(sign)) return sign.size();
  }
  if (rest.front() != '.' && rest.front() != '!' && rest.front() != '?') {
    return 0;
  }
  const bool ends = rest.size() == 1 || rest[1] == ' ' || rest[1] == '\n' ||
                    rest[1] == '\r' || rest[1] == '\t';
  return ends ? 1 : 0;
}

}  // namespace

std::vector<Story> parse_babi(std::span<const std::string> lines,
                              const std::string& name) {
  std::vector<Story> stories;
  std::vector<std::string> told;
  std::map<std::int64_t, std::int64_t> sentence_of;  // by the number of a line
  std::int64_t number = 0;
  for (const std::string& line : lines) {
    ++number;
    if (text::is_blank(line)) continue;
    const auto fail = [&](const char* rule) {
      throw_parse_error(kWhere, "'", name, "', line ", number, ": ", rule,
                        "; got ", io::in_quotes(line));
    };
    std::int64_t place = 0;
    const char* const end = line.data() + line.size();
    const auto read = std::from_chars(line.data(), end, place);
    if (read.ec != std::errc() || place < 1 || read.ptr == end ||
        *read.ptr != ' ') {
      fail("a line must begin with its number and a blank");
    }
    if (place == 1) {
      told.clear();
      sentence_of.clear();
    }
    const std::string_view rest(read.ptr + 1,
                                static_cast<std::size_t>(end - read.ptr - 1));
    const std::size_t tab = rest.find('\t');
    if (trimmed(rest.substr(0, tab)).empty()) {
      fail("a line must say something");
    }
    if (tab == std::string_view::npos) {
      sentence_of[place] = std::ssize(told);
      told.emplace_back(trimmed(rest));
      continue;
    }
    const std::string_view after = rest.substr(tab + 1);
    const std::string_view answer = trimmed(after.substr(0, after.find('\t')));
    if (answer.empty()) fail("a question must have an answer after the tab");
    Story story = {told, std::string(trimmed(rest.substr(0, tab))),
                   std::string(answer), number};
    if (const std::size_t more = after.find('\t'); more != after.npos) {
      std::istringstream places{std::string(after.substr(more + 1))};
      for (std::string word; places >> word;) {
        std::int64_t from = 0;
        const auto [ptr, error] =
            std::from_chars(word.data(), word.data() + word.size(), from);
        const auto found = sentence_of.find(from);
        if (error != std::errc() || ptr != word.data() + word.size() ||
            found == sentence_of.end()) {
          fail(
              "after the second tab there must be numbers of lines of the "
              "story that came before");
        }
        story.support.push_back(found->second);
      }
    }
    stories.push_back(std::move(story));
  }
  return stories;
}

std::vector<std::string> split_sentences(std::string_view text) {
  std::vector<std::string> sentences;
  const auto add = [&](std::string_view sentence) {
    const std::string_view words = trimmed(sentence);
    if (!words.empty()) sentences.emplace_back(words);
  };
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t sign = end_sign(text.substr(i));
    if (sign > 0 || text[i] == '\n') {
      i += std::max<std::size_t>(sign, 1);
      add(text.substr(begin, i - begin));
      begin = i;
    } else {
      ++i;
    }
  }
  add(text.substr(begin));
  return sentences;
}

std::vector<Story> read_stories(const std::filesystem::path& path) {
  if (path.extension() == ".txt") {
    return parse_babi(text::read_lines(path), path.string());
  }
  const std::vector<std::string> columns = {"context", "question", "answer"};
  const text::Table table = text::read_table(path, columns);
  std::vector<Story> stories;
  for (std::size_t i = 0; i < table.lines.size(); ++i) {
    stories.push_back({split_sentences(table.columns[0][i]),
                       table.columns[1][i], table.columns[2][i],
                       table.lines[i]});
  }
  return stories;
}

}  // namespace regard::tasks
