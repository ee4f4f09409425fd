// SPDX-License-Identifier: Apache-2.0
#include "text/pre_tokenizers.h"

#include <algorithm>
#include <utility>

#include "regard/text/utf8.h"
#include "text/models.h"
#include "text/regex.h"

namespace regard::text {
namespace {

constexpr const char* kGpt2Pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
    "\\s+(?!\\S)|\\s+";

// What becomes of the matches of a pattern.
enum class Behavior {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous
};

Behavior behavior_of(const Field& field) {
  const std::string& name = field.text();
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  field.expect(
      "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

// Parts of a word in their order, each a match or what lies between two.
class Parts {
 public:
  void clear() { parts_.clear(); }
  void add(std::size_t begin, std::size_t end, bool match) {
    parts_.push_back({begin, end, match});
  }

  template <typename Keep>
  void keep(Behavior behavior, const Keep& keep) const {
    std::size_t begin = 0;
    switch (behavior) {
      case Behavior::kRemoved:
        for (const Part& part : parts_) {
          if (!part.match) keep(part.begin, part.end);
        }
        return;
      case Behavior::kIsolated:
        for (const Part& part : parts_) keep(part.begin, part.end);
        return;
      case Behavior::kContiguous:
        for (std::size_t i = 0; i < parts_.size(); ++i) {
          if (i + 1 == parts_.size() ||
              parts_[i + 1].match != parts_[i].match) {
            keep(begin, parts_[i].end);
            begin = parts_[i].end;
          }
        }
        return;
      case Behavior::kMergedWithPrevious:
        for (std::size_t i = 0; i < parts_.size(); ++i) {
          const bool joins =
              i + 1 < parts_.size() && parts_[i + 1].match && !parts_[i].match;
          if (joins) continue;
          keep(begin, parts_[i].end);
          begin = parts_[i].end;
        }
        return;
      case Behavior::kMergedWithNext:
        for (std::size_t i = 0; i < parts_.size(); ++i) {
          const bool joins =
              i + 1 < parts_.size() && parts_[i].match && !parts_[i + 1].match;
          if (joins) continue;
          keep(begin, parts_[i].end);
          begin = parts_[i].end;
        }
        return;
    }
  }

 private:
  struct Part {
    std::size_t begin, end;
    bool match;
  };
  std::vector<Part> parts_;
};

class Sequence : public PreTokenizer {
 public:
  Sequence(const Field& field, bool& byte_level) {
    const Field list = field["pretokenizers"];
    list.for_each([&](const Field& part) {
      if (part.is_null()) part.expect("a pre-tokenizer");
      // Bytes stay as they are only where nothing follows that looks at them.
      const bool last = parts_.size() + 1 == list.size();
      bool stays = byte_level && last;
      parts_.push_back(make_pre_tokenizer(part, stays));
      if (last) byte_level = stays;
    });
    if (parts_.empty()) byte_level = false;
  }
  void apply(Words& words) const override {
    for (const auto& part : parts_) part->apply(words);
  }
  bool cuts() const override {
    return std::any_of(parts_.begin(), parts_.end(),
                       [](const auto& part) { return part->cuts(); });
  }
  bool needs_source() const override {
    return std::any_of(parts_.begin(), parts_.end(),
                       [](const auto& part) { return part->needs_source(); });
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

class Split : public PreTokenizer {
 public:
  Split(Regex pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void apply(Words& words) const override {
    Parts parts;
    words.split([&](std::string_view word, const auto& keep) {
      std::size_t end = 0;
      if (behavior_ == Behavior::kIsolated) {
        pattern_.for_each(word, [&](std::size_t from, std::size_t to) {
          keep(end, from);
          keep(from, to);
          end = to;
        });
        return keep(end, word.size());
      }
      parts.clear();
      pattern_.for_each(word, [&](std::size_t from, std::size_t to) {
        if (from > end) parts.add(end, from, invert_);
        parts.add(from, to, !invert_);
        end = to;
      });
      if (end < word.size()) parts.add(end, word.size(), invert_);
      parts.keep(behavior_, keep);
    });
  }

 private:
  Regex pattern_;
  Behavior behavior_;
  bool invert_;
};

// Cuts by a property of single characters.
class SplitChars : public PreTokenizer {
 public:
  SplitChars(bool (*matches)(char32_t), Behavior behavior)
      : matches_(matches), behavior_(behavior) {}

  void apply(Words& words) const override {
    Parts parts;
    words.split([&](std::string_view word, const auto& keep) {
      parts.clear();
      std::size_t rest = 0;
      for (std::size_t at = 0; at < word.size();) {
        const Decoded next = decode_first(word.substr(at));
        if (matches_(next.code)) {
          if (at > rest) parts.add(rest, at, false);
          rest = at + next.length;
          parts.add(at, rest, true);
        }
        at += next.length;
      }
      if (rest < word.size()) parts.add(rest, word.size(), false);
      parts.keep(behavior_, keep);
    });
  }

 private:
  bool (*matches_)(char32_t);
  Behavior behavior_;
};

bool is_bert_punctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') ||
           (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  }
  return is_punctuation(c);
}

class Bert : public PreTokenizer {
 public:
  void apply(Words& words) const override {
    words.split([](std::string_view word, const auto& keep) {
      std::size_t begin = 0;
      for (std::size_t at = 0; at < word.size();) {
        const Decoded next = decode_first(word.substr(at));
        const std::size_t end = at + next.length;
        const bool blank = is_white_space(next.code);
        if (blank || is_bert_punctuation(next.code)) {
          keep(begin, at);
          if (!blank) keep(at, end);
          begin = end;
        }
        at = end;
      }
      keep(begin, word.size());
    });
  }
};

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(const Field& field, bool write)
      : prefix_(field.flag("add_prefix_space", true)),
        cut_(field.flag("use_regex", true)),
        write_(write),
        pattern_(Regex(kGpt2Pattern), Behavior::kIsolated, false) {}

  void apply(Words& words) const override {
    if (prefix_) prepend(words, " ", [](std::size_t) { return true; });
    if (cut_) pattern_.apply(words);
    if (!write_) return;
    words.rewrite([&](std::size_t i, Words::Writer& writer) {
      const Range range = words.words()[i];
      const std::string_view text = words.text();
      std::string c;
      for (std::uint32_t at = range.begin; at < range.end;) {
        const std::uint32_t length = decode_first(text.substr(at)).length;
        for (std::uint32_t b = at; b < at + length; ++b) {
          c.clear();
          append_utf8(c, byte_level_char(static_cast<unsigned char>(text[b])));
          writer.put(c, {at, at + length});
        }
        at += length;
      }
    });
  }

  bool cuts() const override { return cut_; }

  // Puts a text in front of the words that `wanted` names and that do not start
  // with it.
  template <typename Wanted>
  static void prepend(Words& words, std::string_view front,
                      const Wanted& wanted) {
    const auto lacks = [&](std::size_t i) {
      return !words.word(i).empty() && !words.word(i).starts_with(front) &&
             wanted(i);
    };
    std::vector<bool> lacking;
    for (std::size_t i = 0; i < words.words().size(); ++i) {
      lacking.push_back(lacks(i));
    }
    if (std::find(lacking.begin(), lacking.end(), true) == lacking.end()) {
      return;
    }
    words.rewrite([&](std::size_t i, Words::Writer& writer) {
      const Range range = words.words()[i];
      // The new text stands for the first character, as that does.
      if (lacking[i]) {
        const auto length = decode_first(words.word(i)).length;
        writer.put(front, {range.begin, range.begin + length});
      }
      writer.copy(range);
    });
  }

 private:
  bool prefix_, cut_, write_;
  Split pattern_;
};

class Metaspace : public PreTokenizer {
 public:
  explicit Metaspace(const Field& field)
      : blank_(field.text("replacement", "\xE2\x96\x81")),
        cut_(field.flag("split", true)) {
    if (blank_.empty() || decode_first(blank_).length != blank_.size()) {
      field["replacement"].expect("one character");
    }
    // Files of before the scheme have a flag.
    const std::string scheme =
        field.text("prepend_scheme",
                   field.flag("add_prefix_space", true) ? "always" : "never");
    if (scheme != "always" && scheme != "first" && scheme != "never") {
      field["prepend_scheme"].expect("always, first or never");
    }
    always_ = scheme == "always";
    first_ = scheme == "first";
  }

  void apply(Words& words) const override {
    if (words.text().find(' ') != std::string_view::npos) {
      words.rewrite([&](std::size_t i, Words::Writer& writer) {
        const Range range = words.words()[i];
        std::uint32_t done = range.begin;
        for (std::uint32_t b = range.begin; b < range.end; ++b) {
          if (words.text()[b] != ' ') continue;
          writer.copy({done, b});
          writer.put(blank_, {b, b + 1});
          done = b + 1;
        }
        writer.copy({done, range.end});
      });
    }
    if (always_ || first_) {
      ByteLevel::prepend(words, blank_, [&](std::size_t i) {
        return always_ || words.source(words.words()[i]).begin == 0;
      });
    }
    if (!cut_) return;
    words.split([this](std::string_view word, const auto& keep) {
      std::size_t begin = 0;
      for (std::size_t at = word.find(blank_, 1); at != std::string_view::npos;
           at = word.find(blank_, at + 1)) {
        keep(begin, at);
        begin = at;
      }
      keep(begin, word.size());
    });
  }
  bool cuts() const override { return cut_; }
  bool needs_source() const override { return first_; }

 private:
  std::string blank_;
  bool cut_, always_ = false, first_ = false;
};

std::unique_ptr<PreTokenizer> make_split(const Field& field) {
  const Field pattern = field["pattern"];
  try {
    return std::make_unique<Split>(
        pattern.has("String") ? Regex(Regex::escaped(pattern["String"].text()))
                              : Regex(pattern["Regex"].text()),
        behavior_of(field["behavior"]), field.flag("invert", false));
  } catch (const InvalidArgument& error) {
    pattern.fail("cannot be used: ", error.what());
  }
}

}  // namespace

void Words::start(std::string_view text, std::uint32_t base,
                  std::vector<Range> from, bool track) {
  text_ = text;
  base_ = base;
  from_ = std::move(from);
  track_ = track;
  rewritten_ = false;
  words_.assign(1, {0, static_cast<std::uint32_t>(text.size())});
}

Range Words::source(Range bytes) const {
  if (from_.empty()) {
    if (rewritten_ || bytes.begin >= bytes.end) return {base_, base_};
    return {base_ + bytes.begin, base_ + bytes.end};
  }
  Range whole = from_[bytes.begin];
  for (std::uint32_t i = bytes.begin; i < bytes.end; ++i) {
    whole.begin = std::min(whole.begin, from_[i].begin);
    whole.end = std::max(whole.end, from_[i].end);
  }
  return whole;
}

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Field& field,
                                                 bool& byte_level) {
  const bool stays = std::exchange(byte_level, false);
  if (field.is_null()) return nullptr;
  const std::string& type = field["type"].text();
  if (type == "Sequence") {
    byte_level = stays;
    return std::make_unique<Sequence>(field, byte_level);
  }
  if (type == "ByteLevel") {
    byte_level = stays;
    return std::make_unique<ByteLevel>(field, !stays);
  }
  if (type == "BertPreTokenizer") return std::make_unique<Bert>();
  if (type == "Metaspace") return std::make_unique<Metaspace>(field);
  if (type == "Split") return make_split(field);
  if (type == "Whitespace") {
    return std::make_unique<Split>(
        Regex("\\w+|[^\\w\\s]+", Regex::WordCharacters::kRust),
        Behavior::kRemoved, true);
  }
  if (type == "WhitespaceSplit") {
    return std::make_unique<SplitChars>(is_white_space, Behavior::kRemoved);
  }
  if (type == "Digits") {
    return std::make_unique<SplitChars>(is_numeric,
                                        field.flag("individual_digits", false)
                                            ? Behavior::kIsolated
                                            : Behavior::kContiguous);
  }
  if (type == "Punctuation") {
    return std::make_unique<SplitChars>(is_bert_punctuation,
                                        field.has("behavior")
                                            ? behavior_of(field["behavior"])
                                            : Behavior::kIsolated);
  }
  if (type == "CharDelimiterSplit") {
    const std::string& delimiter = field["delimiter"].text();
    return std::make_unique<Split>(Regex(Regex::escaped(delimiter)),
                                   Behavior::kRemoved, false);
  }
  field.unknown_kind("pre-tokenizer");
}

}  // namespace regard::text
