// SPDX-License-Identifier: Apache-2.0
#include "text/normalizers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "regard/text/utf8.h"
#include "text/base64.h"
#include "text/charsmap.h"
#include "text/models.h"
#include "text/regex.h"

namespace regard::text {
namespace {

constexpr char32_t kBlank = 0x2581;  // SentencePiece's

void append_text(std::string_view text, Range from, Chars& chars) {
  while (!text.empty()) {
    const Decoded next = decode_first(text);
    chars.push_back({next.code, from});
    text.remove_prefix(std::min<std::size_t>(next.length, text.size()));
  }
}

class Sequence : public Normalizer {
 public:
  explicit Sequence(const Field& field) {
    field["normalizers"].for_each([this](const Field& part) {
      if (part.is_null()) part.expect("a normalizer");
      parts_.push_back(make_normalizer(part));
    });
  }
  void apply(Chars& chars) const override {
    for (const auto& part : parts_) part->apply(chars);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

class Unicode : public Normalizer {
 public:
  explicit Unicode(NormalForm form) : form_(form) {}
  void apply(Chars& chars) const override { normalize(chars, form_); }

 private:
  NormalForm form_;
};

class Lowercase : public Normalizer {
 public:
  void apply(Chars& chars) const override { lower_case(chars); }
};

class StripAccents : public Normalizer {
 public:
  void apply(Chars& chars) const override {
    std::erase_if(chars, [](const Char& c) { return is_any_mark(c.code); });
  }
};

bool is_chinese(char32_t c) {
  const auto in = [c](char32_t first, char32_t last) {
    return c >= first && c <= last;
  };
  return in(0x4E00, 0x9FFF) || in(0x3400, 0x4DBF) || in(0x20000, 0x2A6DF) ||
         in(0x2A700, 0x2B73F) || in(0x2B740, 0x2B81F) || in(0x2B920, 0x2CEAF) ||
         in(0xF900, 0xFAFF) || in(0x2F800, 0x2FA1F);
}

class Bert : public Normalizer {
 public:
  explicit Bert(const Field& field)
      : clean_(field.flag("clean_text", true)),
        chinese_apart_(field.flag("handle_chinese_chars", true)),
        lowercase_(field.flag("lowercase", true)),
        strip_accents_(field.flag("strip_accents", lowercase_)) {}

  void apply(Chars& chars) const override {
    if (clean_) clean(chars);
    if (chinese_apart_) put_chinese_apart(chars);
    if (strip_accents_) {
      normalize(chars, NormalForm::kD);
      // Fewer than StripAccents: vowel signs of Indic scripts stay.
      std::erase_if(chars, [](const Char& c) { return is_mark(c.code); });
    }
    if (lowercase_) lower_case(chars);
  }

 private:
  static void clean(Chars& chars) {
    std::size_t kept = 0;
    for (const Char& c : chars) {
      if (c.code >= ' ' && c.code < 0x7F) {
        chars[kept++] = c;
      } else if (c.code == '\t' || c.code == '\n' || c.code == '\r') {
        chars[kept++] = {' ', c.from};
      } else if (c.code != 0xFFFD && !is_other(c.code)) {
        chars[kept++] = {is_white_space(c.code) ? U' ' : c.code, c.from};
      }
    }
    chars.resize(kept);
  }

  static void put_chinese_apart(Chars& chars) {
    if (std::none_of(chars.begin(), chars.end(),
                     [](const Char& c) { return is_chinese(c.code); })) {
      return;
    }
    Chars out;
    out.reserve(2 * chars.size());
    for (const Char& c : chars) {
      if (is_chinese(c.code)) {
        out.push_back({' ', c.from});
        out.push_back(c);
        out.push_back({' ', c.from});
      } else {
        out.push_back(c);
      }
    }
    chars.swap(out);
  }

  bool clean_, chinese_apart_, lowercase_, strip_accents_;
};

class Strip : public Normalizer {
 public:
  explicit Strip(const Field& field)
      : left_(field.flag("strip_left", true)),
        right_(field.flag("strip_right", true)) {}

  void apply(Chars& chars) const override {
    const auto is_ink = [](const Char& c) { return !is_white_space(c.code); };
    if (right_) {
      chars.erase(std::find_if(chars.rbegin(), chars.rend(), is_ink).base(),
                  chars.end());
    }
    if (left_) {
      chars.erase(chars.begin(),
                  std::find_if(chars.begin(), chars.end(), is_ink));
    }
  }

 private:
  bool left_, right_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(const Field& field) : text_(field["prepend"].text()) {}

  void apply(Chars& chars) const override {
    if (chars.empty()) return;
    Chars out;
    // As wide as nothing, in front of the first.
    append_text(text_, {chars[0].from.begin, chars[0].from.begin}, out);
    out.insert(out.end(), chars.begin(), chars.end());
    chars.swap(out);
  }

 private:
  std::string text_;
};

// A pattern of tokenizer.json: {"String": ...} or {"Regex": ...}.
Regex pattern_of(const Field& field) {
  try {
    return field.has("String") ? Regex(Regex::escaped(field["String"].text()))
                               : Regex(field["Regex"].text());
  } catch (const InvalidArgument& error) {
    field.fail("cannot be used: ", error.what());
  }
}

class Replace : public Normalizer {
 public:
  explicit Replace(const Field& field)
      : by_(field["content"].text()), pattern_(pattern_of(field["pattern"])) {
    // The common case, one character, needs no search.
    if (field["pattern"].has("String")) {
      const std::string& text = field["pattern"]["String"].text();
      if (text.empty()) field["pattern"].expect("a text that is not empty");
      const Decoded first = decode_first(text);
      if (first.length == text.size()) one_ = first.code;
    }
  }

  void apply(Chars& chars) const override {
    Chars out;
    if (one_) {
      out.reserve(chars.size());
      for (const Char& c : chars) {
        if (c.code == *one_) {
          append_text(by_, c.from, out);
        } else {
          out.push_back(c);
        }
      }
      return chars.swap(out);
    }
    std::string text;
    encode_utf8(chars, text);
    std::size_t bytes = 0, next = 0;  // of the first character to come
    const auto copy_until = [&](std::size_t end) {
      while (bytes < end) {
        bytes += decode_first(std::string_view(text).substr(bytes)).length;
        out.push_back(chars[next++]);
      }
    };
    pattern_.for_each(text, [&](std::size_t begin, std::size_t end) {
      copy_until(begin);
      Range from{next < chars.size()
                     ? chars[next].from.begin
                     : (chars.empty() ? 0 : chars.back().from.end),
                 0};
      from.end = from.begin;
      while (bytes < end) {
        bytes += decode_first(std::string_view(text).substr(bytes)).length;
        from.end = chars[next++].from.end;
      }
      append_text(by_, from, out);
    });
    copy_until(text.size());
    chars.swap(out);
  }

 private:
  std::string by_;
  Regex pattern_;
  std::optional<char32_t> one_;
};

class Nmt : public Normalizer {
 public:
  void apply(Chars& chars) const override {
    std::erase_if(chars, [](const Char& c) {
      return (c.code >= 1 && c.code <= 8) || c.code == 0xB ||
             (c.code >= 0xE && c.code <= 0x1F) || c.code == 0x7F ||
             c.code == 0x8F || c.code == 0x9F;
    });
    for (Char& c : chars) {
      if (c.code == 9 || c.code == 0xA || c.code == 0xC || c.code == 0xD ||
          c.code == 0x1680 || (c.code >= 0x200B && c.code <= 0x200F) ||
          c.code == 0x2028 || c.code == 0x2029 || c.code == kBlank ||
          c.code == 0xFEFF || c.code == 0xFFFD) {
        c.code = ' ';
      }
    }
  }
};

// Hugging Face's use of SentencePiece's table, which is not SentencePiece's: a
// short grapheme cluster is replaced as a whole by what its *shortest* prefix
// in the table stands for; otherwise, each character by itself.
class Precompiled : public Normalizer {
 public:
  explicit Precompiled(const Field& field) {
    const Field map = field["precompiled_charsmap"];
    const auto bytes = from_base64(map.text());
    if (!bytes) map.fail("must be written in base64");
    try {
      map_ = CharsMap(*bytes);
    } catch (const InvalidArgument& error) {
      map.fail("cannot be used: ", error.what());
    }
  }

  void apply(Chars& chars) const override {
    Chars out;
    out.reserve(chars.size());
    std::string text;
    for_each_cluster(chars, [&](std::size_t first, std::size_t end) {
      text.clear();
      for (std::size_t i = first; i < end && text.size() < kLongCluster; ++i) {
        append_utf8(text, chars[i].code);
      }
      if (text.size() < kLongCluster) {
        if (const auto found = map_.shortest(text); found.length != 0) {
          append_text(found.by,
                      {chars[first].from.begin, chars[end - 1].from.end}, out);
          return;
        }
      }
      for (std::size_t i = first; i < end; ++i) {
        text.clear();
        append_utf8(text, chars[i].code);
        if (const auto found = map_.shortest(text); found.length != 0) {
          append_text(found.by, chars[i].from, out);
        } else {
          out.push_back(chars[i]);
        }
      }
    });
    chars.swap(out);
  }

 private:
  static constexpr std::size_t kLongCluster = 6;
  CharsMap map_;
};

class ByteLevel : public Normalizer {
 public:
  void apply(Chars& chars) const override {
    Chars out;
    std::string bytes;
    for (const Char& c : chars) {
      bytes.clear();
      append_utf8(bytes, c.code);
      for (const char b : bytes) {
        out.push_back({byte_level_char(static_cast<unsigned char>(b)), c.from});
      }
    }
    chars.swap(out);
  }
};

class SentencePieceNormalizer : public Normalizer {
 public:
  explicit SentencePieceNormalizer(
      const SentencePieceNormalizerOptions& options)
      : options_(options),
        map_(options.charsmap.empty() ? CharsMap()
                                      : CharsMap(options.charsmap)) {
    std::vector<Trie::Entry> entries;
    for (const std::string& text : options_.user_defined) {
      entries.push_back({text, 0});
    }
    user_defined_ = Trie(std::move(entries));
  }

  void apply(Chars& chars) const override {
    std::string text;
    encode_utf8(chars, text);
    Chars out;
    out.reserve(chars.size() + 1);
    const char32_t blank = options_.escape_whitespaces ? kBlank : U' ';
    bool after_blank = options_.remove_extra_whitespaces;
    bool begun = false;
    std::size_t bytes = 0, next = 0;
    std::vector<char32_t> part;
    while (bytes < text.size()) {
      Range from = chars[next].from;
      std::size_t length = 3;
      if (chars[next].code == 0xFFFD && from.end - from.begin == 1) {
        part.assign(1, 0xFFFD);  // not UTF-8: the table has no say in it
      } else {
        length = prefix(std::string_view(text).substr(bytes), part);
      }
      for (const std::size_t end = bytes + length; bytes < end;) {
        bytes += decode_first(std::string_view(text).substr(bytes)).length;
        from.end = chars[next++].from.end;
      }
      if (!begun) {
        if (options_.remove_extra_whitespaces && part.size() == 1 &&
            part[0] == ' ') {
          continue;
        }
        begun = true;
        if (options_.add_dummy_prefix && !options_.whitespace_as_suffix) {
          out.push_back({blank, {from.begin, from.begin}});
        }
      }
      std::size_t skipped = 0;
      while (after_blank && skipped < part.size() && part[skipped] == ' ') {
        ++skipped;
      }
      if (skipped == part.size()) continue;
      for (std::size_t i = skipped; i < part.size(); ++i) {
        out.push_back({part[i] == ' ' ? blank : part[i], from});
      }
      after_blank = options_.remove_extra_whitespaces && part.back() == ' ';
    }
    if (options_.remove_extra_whitespaces) {
      while (!out.empty() && out.back().code == blank) out.pop_back();
    }
    if (begun && options_.add_dummy_prefix && options_.whitespace_as_suffix) {
      const std::uint32_t end = chars.back().from.end;
      out.push_back({blank, {end, end}});
    }
    chars.swap(out);
  }
  bool takes_any_bytes() const override { return true; }

 private:
  // What the start of a text is replaced by, and how many bytes that is.
  std::size_t prefix(std::string_view text, std::vector<char32_t>& by) const {
    by.clear();
    Chars chars;
    if (const auto found = user_defined_.longest(text); found.length != 0) {
      append_text(text.substr(0, found.length), {}, chars);
      for (const Char& c : chars) by.push_back(c.code);
      return found.length;
    }
    const auto found = map_.longest(text);
    if (found.length == 0) {
      const Decoded first = decode_first(text);
      by.push_back(first.code);
      return first.length;
    }
    append_text(found.by, {}, chars);
    for (const Char& c : chars) by.push_back(c.code);
    return found.length;
  }

  SentencePieceNormalizerOptions options_;
  CharsMap map_;
  Trie user_defined_;
};

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const Field& field) {
  if (field.is_null()) return nullptr;
  const std::string& type = field["type"].text();
  const auto form = [](NormalForm f) { return std::make_unique<Unicode>(f); };
  if (type == "Sequence") return std::make_unique<Sequence>(field);
  if (type == "BertNormalizer") return std::make_unique<Bert>(field);
  if (type == "NFC") return form(NormalForm::kC);
  if (type == "NFD") return form(NormalForm::kD);
  if (type == "NFKC") return form(NormalForm::kKC);
  if (type == "NFKD") return form(NormalForm::kKD);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Strip") return std::make_unique<Strip>(field);
  if (type == "Prepend") return std::make_unique<Prepend>(field);
  if (type == "Replace") return std::make_unique<Replace>(field);
  if (type == "Nmt") return std::make_unique<Nmt>();
  if (type == "Precompiled") return std::make_unique<Precompiled>(field);
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  field.unknown_kind("normalizer");
}

std::unique_ptr<Normalizer> make_sentencepiece_normalizer(
    const SentencePieceNormalizerOptions& options) {
  return std::make_unique<SentencePieceNormalizer>(options);
}

}  // namespace regard::text
