// SPDX-License-Identifier: Apache-2.0
#include "tasks/copied_parts.h"

#include <algorithm>
#include <utility>

#include "text/unicode.h"

namespace regard::tasks {
namespace {

using text::ByteRange;

// Private use: in no vocabulary, and no normal form changes it.
constexpr std::string_view kMark = "\xEE\x80\x80";
constexpr std::string_view kBlanks = " \t";

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
         (c >= 'A' && c <= 'Z');
}

// Of addresses: what is neither blank nor beyond ASCII, where the text of a
// language without blanks goes on.
bool is_in_address(char c) {
  return c > ' ' && c < 0x7F &&
         std::string_view("<>\"'`{}|\\^").find(c) == std::string_view::npos;
}

bool is_in_mail_name(char c) {
  return is_alphanumeric(c) ||
         std::string_view("._%+-").find(c) != std::string_view::npos;
}

// Punctuation at its end belongs to the sentence.
std::size_t end_of_address(std::string_view text, std::size_t at) {
  while (at < text.size() && is_in_address(text[at])) ++at;
  while (at > 0 && std::string_view(".,;:!?)]*_").find(text[at - 1]) !=
                       std::string_view::npos) {
    --at;
  }
  return at;
}

ByteRange mail_address(std::string_view text, std::size_t at_sign) {
  std::size_t begin = at_sign;
  while (begin > 0 && is_in_mail_name(text[begin - 1])) --begin;
  std::size_t end = at_sign + 1;
  while (end < text.size() &&
         (is_alphanumeric(text[end]) || text[end] == '-' || text[end] == '.'))
    ++end;
  while (end > at_sign && !is_alphanumeric(text[end - 1])) --end;
  const bool host =
      text.substr(at_sign, end - at_sign).find('.') != std::string_view::npos;
  if (begin == at_sign || end == at_sign || !host) return {};
  return {static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)};
}

// A text with marks in the place of addresses, and the way back.
class Marked {
 public:
  explicit Marked(std::string_view text) : addresses_(find_addresses(text)) {
    std::size_t from = 0;
    for (const ByteRange& address : addresses_) {
      marked_ +=
          text.substr(from, static_cast<std::size_t>(address.begin) - from);
      marks_.push_back(marked_.size());
      marked_ += kMark;
      from = static_cast<std::size_t>(address.end);
    }
    marked_ += text.substr(from);
  }

  const std::string& text() const { return marked_; }
  bool has_mark(const ByteRange& range) const {
    return std::any_of(marks_.begin(), marks_.end(), [&](std::size_t mark) {
      return range.begin < static_cast<std::int64_t>(mark + kMark.size()) &&
             range.end > static_cast<std::int64_t>(mark);
    });
  }
  // The bytes of the original text, marks whole.
  ByteRange original(const ByteRange& range) const {
    return {moved(range.begin, false), moved(range.end, true)};
  }

 private:
  std::int64_t moved(std::int64_t place, bool is_end) const {
    std::int64_t shift = 0;
    for (std::size_t i = 0; i < marks_.size(); ++i) {
      const auto mark = static_cast<std::int64_t>(marks_[i]);
      const std::int64_t behind = mark + std::ssize(kMark);
      if (place <= mark) break;
      if (place < behind)
        return is_end ? addresses_[i].end : addresses_[i].begin;
      shift = addresses_[i].end - behind;
    }
    return place + shift;
  }

  std::vector<ByteRange> addresses_;
  std::vector<std::size_t> marks_;
  std::string marked_;
};

// Is it written as a byte, "<0xE4>"? Then no piece has its character.
bool is_byte(const std::string& piece) {
  return piece.size() == 6 && piece.starts_with("<0x") && piece.back() == '>';
}

struct FoundParts {
  std::vector<std::int32_t> pieces;
  std::vector<CopiedPart> parts;
  std::vector<ByteRange> places;  // of the parts, without blanks
};

// Those of which drops(number) is true.
template <typename Drops>
void drop_parts(FoundParts& found, const Drops& drops) {
  FoundParts kept;
  for (std::size_t i = 0; i < found.parts.size(); ++i) {
    if (drops(i)) continue;
    kept.parts.push_back(std::move(found.parts[i]));
    kept.places.push_back(found.places[i]);
  }
  found.parts = std::move(kept.parts);
  found.places = std::move(kept.places);
}

// Of text that is cut already, "wo@@ rd", a piece is no word to copy.
void drop_fragments(std::string_view sentence, FoundParts& found) {
  constexpr std::string_view kGoesOn = "@@";
  drop_parts(found, [&](std::size_t i) {
    std::string_view before =
        sentence.substr(0, static_cast<std::size_t>(found.places[i].begin));
    const std::size_t end = before.find_last_not_of(kBlanks);
    before = before.substr(0, end == std::string_view::npos ? 0 : end + 1);
    return before.ends_with(kGoesOn) || found.parts[i].text.ends_with(kGoesOn);
  });
}

FoundParts find_parts(const text::Tokenizer& tokenizer,
                      std::string_view sentence) {
  const Marked marked(sentence);
  text::Encoding encoding = tokenizer.encode(
      marked.text(), {.add_special_tokens = false, .offsets = true});
  const std::int32_t unknown = tokenizer.special().unknown;
  FoundParts found;
  bool open = false;
  for (std::size_t i = 0; i < encoding.ids.size(); ++i) {
    const ByteRange& range = encoding.offsets[i];
    const bool copied = encoding.ids[i] == unknown ||
                        is_byte(tokenizer.piece(encoding.ids[i])) ||
                        marked.has_mark(range);
    const auto place = static_cast<std::int64_t>(i);
    if (!copied) {
      open = false;
      continue;
    }
    const ByteRange bytes = marked.original(range);
    // Blanks part words.
    const bool joins =
        open && bytes.begin <= found.places.back().end &&
        !(bytes.begin < bytes.end &&
          kBlanks.find(sentence[static_cast<std::size_t>(bytes.begin)]) !=
              std::string_view::npos);
    if (joins) {
      found.parts.back().end = place + 1;
      found.places.back().end = std::max(found.places.back().end, bytes.end);
    } else {
      found.parts.push_back({{}, place, place + 1});
      found.places.push_back(bytes);
    }
    open = true;
  }
  for (std::size_t i = 0; i < found.parts.size(); ++i) {
    ByteRange& place = found.places[i];
    const auto blank = [&](std::int64_t at) {
      return kBlanks.find(sentence[static_cast<std::size_t>(at)]) !=
             std::string_view::npos;
    };
    while (place.begin < place.end && blank(place.begin)) ++place.begin;
    while (place.begin < place.end && blank(place.end - 1)) --place.end;
    found.parts[i].text =
        sentence.substr(static_cast<std::size_t>(place.begin),
                        static_cast<std::size_t>(place.end - place.begin));
  }
  found.pieces = std::move(encoding.ids);
  drop_fragments(sentence, found);
  return found;
}

// Arrows, dingbats, emoji and what joins them: no word's part.
bool is_symbol(char32_t c) {
  return (c >= 0x2190 && c <= 0x2BFF) || (c >= 0x1F000 && c <= 0x1FAFF) ||
         (c >= 0xFE00 && c <= 0xFE0F) || c == 0x200D || c == 0x20E3;
}

bool is_symbols(std::string_view text) {
  while (!text.empty()) {
    const text::Decoded c = text::decode_first(text);
    if (!is_symbol(c.code) && !text::is_white_space(c.code)) return false;
    text.remove_prefix(c.length);
  }
  return true;
}

// How many bytes of accents, of a letter before them, a text begins with.
std::size_t leading_accents(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size()) {
    const text::Decoded c = text::decode_first(text.substr(end));
    if (!text::is_any_mark(c.code) || is_symbol(c.code)) break;
    end += c.length;
  }
  return end;
}

// With letters and their accents as one character, where there is one.
std::string composed(std::string_view text) {
  text::Chars chars;
  text::decode_utf8(text, 0, chars);
  text::normalize(chars, text::NormalForm::kC);
  std::string out;
  text::encode_utf8(chars, out);
  return out;
}

// An accent that is copied without its letter would stand on any other.
void drop_leading_accents(FoundParts& found) {
  drop_parts(found, [&](std::size_t i) {
    std::string& text = found.parts[i].text;
    const std::size_t accents = leading_accents(text);
    text.erase(0, accents);
    found.places[i].begin += static_cast<std::int64_t>(accents);
    return accents > 0 && text.empty();
  });
}

bool is_wide(std::string_view text, bool at_end) {
  if (text.empty()) return false;
  const char32_t c =
      at_end ? text::last_char(text) : text::decode_first(text).code;
  return c >= 0x2E80;
}

// Is there something to translate outside of the parts?
bool has_words(std::string_view text, const std::vector<ByteRange>& parts) {
  std::size_t from = 0;
  const auto is_word = [](std::string_view between) {
    while (!between.empty()) {
      const text::Decoded c = text::decode_first(between);
      if (!text::is_white_space(c.code) && !text::is_punctuation(c.code)) {
        return true;
      }
      between.remove_prefix(c.length);
    }
    return false;
  };
  for (const ByteRange& part : parts) {
    const auto begin = static_cast<std::size_t>(part.begin);
    if (is_word(text.substr(from, begin - from))) return true;
    from = static_cast<std::size_t>(part.end);
  }
  return is_word(text.substr(from));
}

// Not inside of a word, and not behind the stop that ends the text.
std::size_t place_for_part(const std::string& text, std::size_t at) {
  if (at == 0) return 0;
  while (at < text.size() && is_alphanumeric(text[at - 1]) &&
         is_alphanumeric(text[at])) {
    ++at;
  }
  // Nor inside of a character.
  const auto goes_on = [&text](std::size_t i) {
    return (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
  };
  while (at < text.size() && goes_on(at)) ++at;
  while (at == text.size() && at > 0 &&
         text::is_punctuation(text::last_char(text))) {
    do --at;
    while (at > 0 && goes_on(at));
    if (at == 0) return text.size();  // punctuation alone
  }
  return at;
}

// Where characters are written as bytes, a model may write the mark.
std::string text_of(const text::Tokenizer& tokenizer,
                    std::span<const std::int32_t> pieces) {
  std::string text = tokenizer.decode(pieces);
  for (std::size_t at = text.find(kMark); at != std::string::npos;
       at = text.find(kMark, at)) {
    text.erase(at, kMark.size());
  }
  return text;
}

// Between a copied part and what was said stands a blank, but where that is
// Chinese or begins with punctuation.
enum class Adds { kSaid, kPart };
void add(std::string& text, std::string_view more, Adds what) {
  if (more.empty()) return;
  const auto is_blank = [](char c) {
    return kBlanks.find(c) != std::string_view::npos;
  };
  const bool parted =
      text.empty() || is_blank(text.back()) || is_blank(more.front());
  const bool wide =
      what == Adds::kPart ? is_wide(text, true) : is_wide(more, false);
  if (!parted && !wide &&
      !text::is_punctuation(text::decode_first(more).code)) {
    text += ' ';
  }
  text += more;
}

}  // namespace

std::vector<ByteRange> find_addresses(std::string_view text) {
  std::vector<ByteRange> found;
  for (std::size_t at = 0; at < text.size();) {
    ByteRange address;
    const std::string_view rest = text.substr(at);
    const bool starts = at == 0 || !is_alphanumeric(text[at - 1]);
    for (const std::string_view scheme :
         {"https://", "http://", "ftp://", "www."}) {
      if (!starts || !rest.starts_with(scheme)) continue;
      const std::size_t end = end_of_address(text, at + scheme.size());
      if (end > at + scheme.size())
        address = {static_cast<std::int64_t>(at),
                   static_cast<std::int64_t>(end)};
      break;
    }
    if (text[at] == '@') address = mail_address(text, at);
    if (address.end == 0 ||
        (!found.empty() && address.begin < found.back().end)) {
      ++at;
      continue;
    }
    found.push_back(address);
    at = static_cast<std::size_t>(address.end);
  }
  return found;
}

SourceText read_source(const text::Tokenizer& tokenizer,
                       std::string_view sentence) {
  FoundParts found = find_parts(tokenizer, sentence);
  const bool is_torn = std::any_of(
      found.parts.begin(), found.parts.end(),
      [](const CopiedPart& part) { return leading_accents(part.text) > 0; });
  std::string whole;
  if (is_torn) {
    whole = composed(sentence);
    sentence = whole;
    found = find_parts(tokenizer, sentence);
  }
  if (!found.parts.empty() && !has_words(sentence, found.places)) {
    return {.head = std::string(sentence)};
  }
  drop_leading_accents(found);
  std::size_t begin = 0, end = sentence.size();
  const auto blank_between = [&](std::size_t from, std::size_t to) {
    return sentence.substr(from, to - from).find_first_not_of(kBlanks) ==
           std::string_view::npos;
  };
  for (std::size_t i = 0; i < found.parts.size(); ++i) {
    const auto place = static_cast<std::size_t>(found.places[i].begin);
    if (!is_symbols(found.parts[i].text) || !blank_between(begin, place)) break;
    begin = static_cast<std::size_t>(found.places[i].end);
  }
  for (std::size_t i = found.parts.size(); i-- > 0;) {
    const auto place = static_cast<std::size_t>(found.places[i].end);
    if (place <= begin || !is_symbols(found.parts[i].text) ||
        !blank_between(place, end))
      break;
    end = static_cast<std::size_t>(found.places[i].begin);
  }
  SourceText source;
  if (begin > 0 || end < sentence.size()) {
    source.head = sentence.substr(0, begin);
    source.tail = sentence.substr(end);
    // Blanks beside them stay beside them.
    while (begin < end &&
           kBlanks.find(sentence[begin]) != std::string_view::npos) {
      source.head += sentence[begin++];
    }
    while (end > begin &&
           kBlanks.find(sentence[end - 1]) != std::string_view::npos) {
      source.tail.insert(0, 1, sentence[--end]);
    }
    found = find_parts(tokenizer, sentence.substr(begin, end - begin));
    drop_leading_accents(found);
  }
  source.pieces = std::move(found.pieces);
  source.parts = std::move(found.parts);
  return source;
}

std::string with_copied_parts(const SourceText& source,
                              const text::Tokenizer& tokenizer,
                              std::span<const std::int32_t> said,
                              const std::vector<std::vector<float>>& weights) {
  const std::int32_t unknown = tokenizer.special().unknown;
  const auto weight_of = [&](std::size_t t, const CopiedPart& part) {
    float sum = 0;
    for (std::int64_t i = part.begin; i < part.end; ++i)
      sum += weights[t][static_cast<std::size_t>(i)];
    return sum;
  };
  std::vector<bool> used(source.parts.size());
  std::vector<std::int32_t> known;
  std::vector<std::size_t> place;  // [said]: how many known pieces come before
  std::vector<std::pair<std::size_t, std::size_t>>
      order;  // known pieces before, part
  for (std::size_t t = 0; t < said.size(); ++t) {
    if (said[t] != unknown) {
      known.push_back(said[t]);
      place.push_back(known.size());
      continue;
    }
    place.push_back(known.size());
    std::size_t best = source.parts.size();
    for (std::size_t p = 0; p < source.parts.size(); ++p) {
      if (used[p]) continue;
      if (best == source.parts.size() ||
          weight_of(t, source.parts[p]) > weight_of(t, source.parts[best]))
        best = p;
    }
    if (best == source.parts.size()) continue;  // nothing is left to copy
    used[best] = true;
    order.emplace_back(known.size(), best);
  }
  const std::string text = text_of(tokenizer, known);
  for (std::size_t p = 0; p < source.parts.size(); ++p) {
    // Where characters are written as bytes, the model may have copied it.
    if (used[p] || text.find(source.parts[p].text) != std::string::npos)
      continue;
    std::size_t best = 0;
    for (std::size_t t = 1; t < said.size(); ++t) {
      if (weight_of(t, source.parts[p]) > weight_of(best, source.parts[p]))
        best = t;
    }
    order.emplace_back(said.empty() ? 0 : place[best], p);
  }
  std::stable_sort(
      order.begin(), order.end(),
      [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string out = source.head;
  std::size_t from = 0;
  for (const auto& [before, part] : order) {
    const std::string prefix =
        text_of(tokenizer, std::span(known).first(before));
    const std::size_t at = std::max(
        from, place_for_part(text, std::min(prefix.size(), text.size())));
    add(out, std::string_view(text).substr(from, at - from), Adds::kSaid);
    add(out, source.parts[part].text, Adds::kPart);
    from = at;
  }
  add(out, std::string_view(text).substr(from), Adds::kSaid);
  return out + source.tail;
}

}  // namespace regard::tasks
