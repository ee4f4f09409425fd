// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/translate_text.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "regard/core/error.h"
#include "tasks/kept_numbers.h"
#include "tasks/repetition.h"
#include "text/unicode.h"

namespace regard::tasks {
namespace {

using text::ByteRange;

constexpr std::array kAbbreviations = {
    "mr",  "mrs", "ms",  "dr",  "prof", "st",   "jr",     "sr",  "vs",  "no",
    "e.g", "i.e", "u.s", "u.k", "a.m",  "p.m",  "capt",   "col", "gen", "lt",
    "sgt", "rev", "hon", "mt",  "fig",  "dept", "approx", "est"};

char small(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_abbreviation(std::string_view word) {
  std::string lower(word);
  std::transform(lower.begin(), lower.end(), lower.begin(), small);
  const bool initial =
      word.size() == 1 && word[0] >= 'A' && word[0] <= 'Z' && word[0] != 'I';
  return initial || std::find(kAbbreviations.begin(), kAbbreviations.end(),
                              lower) != kAbbreviations.end();
}

bool is_stop(char32_t c) {
  return c == '.' || c == '!' || c == '?' || c == 0x2026;
}
bool is_wide_stop(char32_t c) {
  return c == 0x3002 || c == 0xFF01 || c == 0xFF1F || c == 0xFF61;
}
// Quotes and brackets that close.
bool closes(char32_t c) {
  return c == '"' || c == '\'' || c == ')' || c == ']' || c == 0x2019 ||
         c == 0x201D || c == 0x300D || c == 0x300F || c == 0xFF09 ||
         c == 0x300B;
}

// Does a sentence end with the stop at chars[i]? The next one begins at `next`.
class Sentences {
 public:
  explicit Sentences(std::string_view line) : line_(line) {
    text::decode_utf8(line, 0, chars_);
  }

  std::vector<ByteRange> find() const {
    std::vector<ByteRange> found;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < chars_.size(); ++i) {
      if (!is_stop(code(i)) && !is_wide_stop(code(i))) continue;
      const bool wide = is_wide_stop(code(i));
      std::size_t end = i + 1;
      while (end < chars_.size() &&
             (is_stop(code(end)) || is_wide_stop(code(end)) ||
              closes(code(end)))) {
        ++end;
      }
      if (wide || ends(i, end)) {
        add(begin, end, found);
        begin = end;
      }
      i = end - 1;
    }
    add(begin, chars_.size(), found);
    return found;
  }

 private:
  char32_t code(std::size_t i) const { return chars_[i].code; }

  // The stop at i, with all that closes until `end`.
  bool ends(std::size_t i, std::size_t end) const {
    if (end == chars_.size()) return true;
    if (!text::is_white_space(code(end))) return false;
    std::size_t next = end;
    while (next < chars_.size() && text::is_white_space(code(next))) ++next;
    if (next == chars_.size()) return true;
    if (code(next) >= 'a' && code(next) <= 'z') return false;
    if (code(i) != '.' || end > i + 1) return true;
    std::size_t begin = i;
    while (begin > 0 &&
           (code(begin - 1) == '.' ||
            (code(begin - 1) < 0x80 && !text::is_white_space(code(begin - 1)) &&
             !text::is_punctuation(code(begin - 1))))) {
      --begin;
    }
    return !is_abbreviation(bytes(begin, i));
  }

  std::string_view bytes(std::size_t begin, std::size_t end) const {
    if (begin == end) return {};
    const std::size_t first = chars_[begin].from.begin;
    return line_.substr(first, chars_[end - 1].from.end - first);
  }

  void add(std::size_t begin, std::size_t end,
           std::vector<ByteRange>& found) const {
    while (begin < end && text::is_white_space(code(begin))) ++begin;
    while (begin < end && text::is_white_space(code(end - 1))) --end;
    if (begin == end) return;
    found.push_back({chars_[begin].from.begin, chars_[end - 1].from.end});
  }

  std::string_view line_;
  text::Chars chars_;
};

// The byte nearest the middle where a clause ends, else a word, else any
// character's end.
std::size_t best_cut(std::string_view sentence) {
  text::Chars chars;
  text::decode_utf8(sentence, 0, chars);
  std::size_t best = 0;
  int best_rank = -1;
  const std::size_t middle = chars.size() / 2;
  const auto distance = [middle](std::size_t i) {
    return i > middle ? i - middle : middle - i;
  };
  for (std::size_t i = 0; i + 1 < chars.size(); ++i) {
    const char32_t c = chars[i].code;
    const bool blank = text::is_white_space(chars[i + 1].code);
    const bool clause = ((c == ',' || c == ';' || c == ':') && blank) ||
                        c == 0xFF0C || c == 0xFF1B || c == 0xFF1A ||
                        c == 0x3001;
    const int rank = clause ? 2 : blank ? 1 : 0;
    if (rank < best_rank) continue;
    // A clause that ends near an end is no better than a word in the middle.
    if (rank > 0 && distance(i) > middle / 2 + 1 && best_rank >= 0) continue;
    if (rank > best_rank || distance(i) < distance(best)) {
      best = i;
      best_rank = rank;
    }
  }
  return chars[best].from.end;
}

// With the special pieces around it.
bool fits(const Translator& translator, std::string_view sentence) {
  const std::int64_t room = translator.config().model.max_length - 3;
  return std::ssize(translator.tokenizer().encode(sentence)) <= room;
}

void cut_to_fit(const Translator& translator, std::string_view sentence,
                std::vector<std::string>& sentences) {
  const std::size_t cut =
      fits(translator, sentence) ? sentence.size() : best_cut(sentence);
  if (cut >= sentence.size()) {
    sentences.emplace_back(sentence);
    return;
  }
  cut_to_fit(translator, sentence.substr(0, cut), sentences);
  cut_to_fit(translator, sentence.substr(cut), sentences);
}

// Chinese and Japanese have no blanks between sentences.
bool is_wide_end(std::string_view text) {
  return !text.empty() && text::last_char(text) >= 0x2E80;
}

// Where a sentence stands: the text it belongs to, and what comes before it.
struct Place {
  std::size_t text;
  std::string breaks;  // lines that end before it
};

}  // namespace

std::vector<ByteRange> find_sentences(std::string_view line) {
  return Sentences(line).find();
}

namespace {

using Found = std::vector<std::vector<Translation>>;

// Translates sentences again whose translations say the same words over and
// over, where the sentences do not. This time no two tokens may follow each
// other twice.
void mend_repetitions(const Translator& translator,
                      std::span<const std::string> sentences,
                      const TranslateOptions& options, Found& found) {
  // What others trained says what their own programs say.
  if (translator.is_imported()) return;
  std::vector<std::size_t> places;
  std::vector<std::string> again;
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    if (has_repetition(found[i].front().text) &&
        !has_repetition(sentences[i])) {
      places.push_back(i);
      again.push_back(sentences[i]);
    }
  }
  if (again.empty()) return;
  TranslateOptions once = options;
  once.no_repeat_ngram = 2;
  Found other = translator.translate(again, once);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (has_repetition(other[i].front().text)) continue;
    found[places[i]] = std::move(other[i]);
  }
}

// Translates sentences again whose translations have lost a number. That the
// number is there goes before all else: before a loop, too, that cannot be
// mended.
void keep_numbers(const Translator& translator,
                  std::span<const std::string> sentences,
                  const TranslateOptions& options, Found& found) {
  struct Lost {
    std::size_t sentence;
    std::vector<ByteRange> numbers;
  };
  std::vector<Lost> lost;
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    std::vector<ByteRange> numbers = find_kept_numbers(sentences[i]);
    if (!has_kept_numbers(sentences[i], numbers, found[i].front().text)) {
      lost.push_back({i, std::move(numbers)});
    }
  }
  for (int kind = 0; kind < NumberStandIns::kKinds && !lost.empty(); ++kind) {
    std::vector<std::optional<NumberStandIns>> tried;
    std::vector<std::string> again;  // blank where there are no stand-ins
    for (const Lost& one : lost) {
      tried.push_back(
          NumberStandIns::make(sentences[one.sentence], one.numbers, kind));
      if (tried.back() && !fits(translator, tried.back()->sentence())) {
        tried.back().reset();  // it has more pieces than the number had
      }
      again.push_back(tried.back() ? tried.back()->sentence() : "");
    }
    Found other = translator.translate(again, options);
    // A sentence may lead astray with a stand-in and not with its number.
    mend_repetitions(translator, again, options, other);
    std::vector<Lost> still;
    for (std::size_t i = 0; i < lost.size(); ++i) {
      std::optional<std::string> text;
      if (tried[i]) text = tried[i]->put_back(other[i].front().text);
      if (text) {
        found[lost[i].sentence] = std::move(other[i]);
        found[lost[i].sentence].front().text = std::move(*text);
      } else {
        still.push_back(std::move(lost[i]));
      }
    }
    lost = std::move(still);
  }
}

std::vector<Translation> translate_one_way(const Translator& translator,
                                           std::span<const std::string> texts,
                                           const TranslateOptions& options) {
  std::vector<std::string> sentences;
  std::vector<Place> places;  // of the sentences, and of each text's end
  for (std::size_t t = 0; t < texts.size(); ++t) {
    std::string breaks;
    const std::string_view text = texts[t];
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string_view line = text.substr(begin, end - begin);
      std::vector<std::string> cut;
      if (translator.config().whole_texts) {
        cut.emplace_back(line);
      } else {
        for (const ByteRange& range : find_sentences(line)) {
          cut_to_fit(
              translator,
              line.substr(static_cast<std::size_t>(range.begin),
                          static_cast<std::size_t>(range.end - range.begin)),
              cut);
        }
      }
      for (std::string& sentence : cut) {
        sentences.push_back(std::move(sentence));
        places.push_back({t, breaks});
        breaks.clear();
      }
      if (end < text.size()) breaks += '\n';
      begin = end + 1;
    }
    sentences.emplace_back();  // blank: what ends a text
    places.push_back({t, breaks});
  }
  Found found = translator.translate(sentences, options);
  if (!translator.config().whole_texts) {
    mend_repetitions(translator, sentences, options, found);
    keep_numbers(translator, sentences, options, found);
  }
  std::vector<Translation> results(texts.size());
  std::vector<std::int64_t> counts(texts.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    Translation& result = results[places[i].text];
    const Translation& best = found[i].front();
    result.text += places[i].breaks;
    const bool joins =
        !result.text.empty() && !best.text.empty() && places[i].breaks.empty();
    if (joins && !is_wide_end(result.text)) result.text += ' ';
    result.text += best.text;
    if (best.text.empty()) continue;
    result.score += best.score;
    ++counts[places[i].text];
  }
  for (std::size_t t = 0; t < texts.size(); ++t) {
    if (counts[t] > 0) results[t].score /= static_cast<double>(counts[t]);
  }
  return results;
}

}  // namespace

std::vector<Translation> translate_texts(const Translator& translator,
                                         std::span<const std::string> texts,
                                         const TranslateOptions& options) {
  require(options.nbest == 1 && !options.align, "translate_texts",
          "nbest must be 1 and align false: they are of single sentences");
  const Languages& languages = translator.config().languages;
  if (!languages.both_directions || !options.to.empty()) {
    return translate_one_way(translator, texts, options);
  }
  std::map<std::string, std::vector<std::size_t>> places;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    places[language_to(languages, texts[i])].push_back(i);
  }
  std::vector<Translation> results(texts.size());
  for (const auto& [language, numbers] : places) {
    std::vector<std::string> chosen;
    for (const std::size_t i : numbers) chosen.push_back(texts[i]);
    TranslateOptions one_way = options;
    one_way.to = language;
    auto found = translate_one_way(translator, chosen, one_way);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      results[numbers[i]] = std::move(found[i]);
    }
  }
  return results;
}

}  // namespace regard::tasks
