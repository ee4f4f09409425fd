// SPDX-License-Identifier: Apache-2.0
#include "tasks/kept_numbers.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "tasks/copied_parts.h"

namespace regard::tasks {
namespace {

using text::ByteRange;

constexpr std::string_view kYear = "\xE5\xB9\xB4";
// Behind a number they multiply it, and other languages count in other steps:
// 3.5 of ten thousand are 35,000.
constexpr std::array<std::string_view, 11> kMultipliers = {
    "hundred",      "thousand",     "million",      "billion",
    "trillion",     "dozen",        "\xE5\x8D\x81", "\xE7\x99\xBE",
    "\xE5\x8D\x83", "\xE4\xB8\x87", "\xE4\xBA\xBF"};

// Years are written in digits everywhere; so are, mostly, two of them.
constexpr std::array<std::array<std::string_view, 8>, NumberStandIns::kKinds>
    kStandIns = {
        {{"1987", "1964", "1975", "1938", "1946", "1953", "1992", "1929"},
         {"23", "47", "68", "92", "36", "74", "85", "59"},
         {"7", "9", "4", "6", "8", "3", "5", "2"},
         {"www.n1.org", "www.n2.org", "www.n3.org", "www.n4.org", "www.n5.org",
          "www.n6.org", "www.n7.org", "www.n8.org"}}};
constexpr int kYears = 0;
constexpr std::size_t kDigitsOfYear = 4;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool joins_digits(char c) {
  return std::string_view(".,:-/").find(c) != std::string_view::npos;
}

std::string_view part(std::string_view text, const ByteRange& range) {
  return text.substr(static_cast<std::size_t>(range.begin),
                     static_cast<std::size_t>(range.end - range.begin));
}

// All numbers of a text: digits, and single signs between them. "3rd" is one
// behind which a letter stands, "B2" is none.
std::vector<ByteRange> find_numbers(std::string_view text) {
  std::vector<ByteRange> found;
  for (std::size_t i = 0; i < text.size();) {
    if (!is_digit(text[i])) {
      ++i;
      continue;
    }
    const std::size_t begin = i;
    while (i < text.size() && (is_digit(text[i]) ||
                               (joins_digits(text[i]) && i + 1 < text.size() &&
                                is_digit(text[i + 1])))) {
      ++i;
    }
    if (begin > 0 && is_letter(text[begin - 1])) continue;
    found.push_back(
        {static_cast<std::int64_t>(begin), static_cast<std::int64_t>(i)});
  }
  return found;
}

// "1,234,567" -> "1234567"; another comma stays.
std::string without_thousands(std::string_view number) {
  std::string out;
  for (std::size_t i = 0; i < number.size(); ++i) {
    if (number[i] != ',') {
      out += number[i];
      continue;
    }
    std::size_t digits = 0;
    while (i + 1 + digits < number.size() && is_digit(number[i + 1 + digits])) {
      ++digits;
    }
    if (digits != 3) out += ',';
  }
  return out;
}

bool is_multiplied(std::string_view behind) {
  while (behind.starts_with(' ')) behind.remove_prefix(1);
  return std::any_of(
      kMultipliers.begin(), kMultipliers.end(),
      [&](std::string_view word) { return behind.starts_with(word); });
}

bool is_whole(std::string_view number) {
  return std::all_of(number.begin(), number.end(), is_digit);
}

bool must_be_kept(std::string_view number) {
  constexpr std::size_t kShortest = 4;
  const std::string plain = without_thousands(number);
  if (!is_whole(plain)) return true;
  const std::size_t significant = plain.find_last_not_of('0') + 1;
  return plain.size() >= kShortest && significant > 2;
}

// How often a number stands in a text as a number of its own; the last place.
struct Occurrences {
  int count = 0;
  ByteRange last;
};
Occurrences find_number(std::string_view text, std::string_view number) {
  Occurrences found;
  for (const ByteRange& range : find_numbers(text)) {
    if (without_thousands(part(text, range)) != number) continue;
    ++found.count;
    found.last = range;
  }
  return found;
}

Occurrences find_text(std::string_view text, std::string_view wanted) {
  Occurrences found;
  for (std::size_t at = text.find(wanted); at != std::string_view::npos;
       at = text.find(wanted, at + 1)) {
    ++found.count;
    found.last = {static_cast<std::int64_t>(at),
                  static_cast<std::int64_t>(at + wanted.size())};
  }
  return found;
}

// "6:30" as Chinese says it: six o'clock, and a half or the minutes.
bool has_chinese_time(std::string_view text, std::string_view number) {
  constexpr std::string_view kOClock = "\xE7\x82\xB9", kHalf = "\xE5\x8D\x8A";
  const std::size_t colon = number.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string hour = std::string(number.substr(0, colon));
  const std::string_view minutes = number.substr(colon + 1);
  for (const ByteRange& range : find_numbers(text)) {
    std::string_view behind = text.substr(static_cast<std::size_t>(range.end));
    if (part(text, range) != hour || !behind.starts_with(kOClock)) continue;
    behind.remove_prefix(kOClock.size());
    if (minutes == "00" || behind.starts_with(minutes) ||
        (minutes == "30" && behind.starts_with(kHalf))) {
      return true;
    }
  }
  return false;
}

// A colon of full width is one.
std::string with_narrow_colons(std::string_view text) {
  constexpr std::string_view kWide = "\xEF\xBC\x9A";
  std::string narrow(text);
  for (std::size_t at = narrow.find(kWide); at != std::string::npos;
       at = narrow.find(kWide, at)) {
    narrow.replace(at, kWide.size(), ":");
  }
  return narrow;
}

}  // namespace

std::vector<ByteRange> find_kept_numbers(std::string_view sentence) {
  const std::vector<ByteRange> addresses = find_addresses(sentence);
  std::vector<ByteRange> kept = find_numbers(sentence);
  std::erase_if(kept, [&](const ByteRange& range) {
    const bool in_address = std::any_of(
        addresses.begin(), addresses.end(), [&](const ByteRange& address) {
          return range.begin < address.end && range.end > address.begin;
        });
    return in_address || !must_be_kept(part(sentence, range)) ||
           is_multiplied(sentence.substr(static_cast<std::size_t>(range.end)));
  });
  return kept;
}

bool has_kept_numbers(std::string_view sentence,
                      const std::vector<ByteRange>& numbers,
                      std::string_view translation) {
  const std::string narrow = with_narrow_colons(translation);
  return std::all_of(
      numbers.begin(), numbers.end(), [&](const ByteRange& range) {
        const std::string number = without_thousands(part(sentence, range));
        return find_number(translation, number).count > 0 ||
               find_number(narrow, number).count > 0 ||
               has_chinese_time(translation, number);
      });
}

std::optional<NumberStandIns> NumberStandIns::make(
    std::string_view sentence, const std::vector<ByteRange>& numbers,
    int kind) {
  NumberStandIns made;
  const auto& all = kStandIns[static_cast<std::size_t>(kind)];
  auto next = all.begin();
  std::size_t from = 0;
  for (const ByteRange& range : numbers) {
    const std::string number(part(sentence, range));
    // A year stands in for what may be one, and not where it would become one.
    if (kind == kYears && !is_whole(number)) return std::nullopt;
    while (next != all.end() && (find_number(sentence, *next).count > 0 ||
                                 find_text(sentence, *next).count > 0)) {
      ++next;
    }
    if (next == all.end()) return std::nullopt;
    const auto begin = static_cast<std::size_t>(range.begin);
    made.sentence_ += sentence.substr(from, begin - from);
    made.sentence_ += *next;
    made.pairs_.push_back({std::string(*next), number});
    from = static_cast<std::size_t>(range.end);
    ++next;
  }
  made.sentence_ += sentence.substr(from);
  return made;
}

std::optional<std::string> NumberStandIns::put_back(
    std::string translation) const {
  std::vector<std::pair<ByteRange, std::string_view>> places;
  for (const Pair& pair : pairs_) {
    const Occurrences found = is_digit(pair.stand_in.front())
                                  ? find_number(translation, pair.stand_in)
                                  : find_text(translation, pair.stand_in);
    if (found.count != 1) return std::nullopt;
    const bool is_year = std::string_view(translation)
                             .substr(static_cast<std::size_t>(found.last.end))
                             .starts_with(kYear);
    if (is_year && pair.number.size() != kDigitsOfYear) return std::nullopt;
    places.emplace_back(found.last, pair.number);
  }
  // From the back, so that the places before stay where they are.
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) {
    return a.first.begin > b.first.begin;
  });
  for (const auto& [range, number] : places) {
    translation.replace(static_cast<std::size_t>(range.begin),
                        static_cast<std::size_t>(range.end - range.begin),
                        number);
  }
  return translation;
}

}  // namespace regard::tasks
