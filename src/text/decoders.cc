// SPDX-License-Identifier: Apache-2.0
#include "text/decoders.h"

#include <algorithm>
#include <utility>

#include "regard/text/utf8.h"
#include "text/models.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace regard::text {
namespace {

using Pieces = std::vector<std::string>;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::string_view kBlank = "\xE2\x96\x81";

void replace_all(std::string& text, std::string_view what,
                 std::string_view by) {
  std::size_t at = text.find(what);
  if (at == std::string::npos) return;
  std::string out;
  std::size_t done = 0;
  for (; at != std::string::npos; at = text.find(what, done)) {
    out.append(text, done, at - done);
    out += by;
    done = at + what.size();
  }
  out.append(text, done);
  text.swap(out);
}

class Sequence : public Decoder {
 public:
  explicit Sequence(const Field& field) {
    field["decoders"].for_each([this](const Field& part) {
      if (part.is_null()) part.expect("a decoder");
      parts_.push_back(make_decoder(part));
    });
  }
  void apply(Pieces& pieces) const override {
    for (const auto& part : parts_) part->apply(pieces);
  }

 private:
  std::vector<std::unique_ptr<Decoder>> parts_;
};

class ByteLevel : public Decoder {
 public:
  void apply(Pieces& pieces) const override {
    std::string all;
    for (const std::string& piece : pieces) {
      const auto bytes = byte_level_bytes(piece);
      all += bytes ? *bytes : piece;
    }
    pieces.assign(1, with_replacements(all));
  }
};

class WordPiece : public Decoder {
 public:
  explicit WordPiece(const Field& field)
      : prefix_(field.text("prefix", "##")),
        cleanup_(field.flag("cleanup", true)) {}

  void apply(Pieces& pieces) const override {
    constexpr std::pair<std::string_view, std::string_view> kClean[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      std::string& piece = pieces[i];
      if (i != 0) {
        if (piece.starts_with(prefix_)) {
          piece.erase(0, prefix_.size());
        } else {
          piece.insert(0, 1, ' ');
        }
      }
      if (!cleanup_) continue;
      for (const auto& [what, by] : kClean) replace_all(piece, what, by);
    }
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

class Metaspace : public Decoder {
 public:
  explicit Metaspace(const Field& field)
      : blank_(field.text("replacement", kBlank)) {
    if (blank_.empty()) field["replacement"].expect("one character");
    const std::string scheme =
        field.text("prepend_scheme",
                   field.flag("add_prefix_space", true) ? "always" : "never");
    if (scheme != "always" && scheme != "first" && scheme != "never") {
      field["prepend_scheme"].expect("always, first or never");
    }
    strips_ = scheme != "never";
  }

  void apply(Pieces& pieces) const override {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      replace_all(pieces[i], blank_, i == 0 && strips_ ? "" : " ");
    }
  }

 private:
  std::string blank_;
  bool strips_ = true;
};

class ByteFallback : public Decoder {
 public:
  void apply(Pieces& pieces) const override {
    Pieces out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (find_invalid_utf8(bytes) == std::string_view::npos) {
        out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), std::string(kReplacement));
      }
      bytes.clear();
    };
    for (std::string& piece : pieces) {
      if (const auto byte = byte_of_piece(piece)) {
        bytes.push_back(static_cast<char>(*byte));
      } else {
        flush();
        out.push_back(std::move(piece));
      }
    }
    flush();
    pieces.swap(out);
  }
};

class Fuse : public Decoder {
 public:
  void apply(Pieces& pieces) const override {
    std::string all;
    for (const std::string& piece : pieces) all += piece;
    pieces.assign(1, std::move(all));
  }
};

class Strip : public Decoder {
 public:
  explicit Strip(const Field& field)
      : content_(field["content"].text()),
        start_(field["start"].count()),
        stop_(field["stop"].count()) {
    if (content_.empty()) field["content"].expect("one character");
  }

  void apply(Pieces& pieces) const override {
    for (std::string& piece : pieces) {
      std::string_view text = piece;
      for (std::int64_t i = 0; i < start_ && text.starts_with(content_); ++i) {
        text.remove_prefix(content_.size());
      }
      for (std::int64_t i = 0; i < stop_ && text.ends_with(content_); ++i) {
        text.remove_suffix(content_.size());
      }
      piece = std::string(text);
    }
  }

 private:
  std::string content_;
  std::int64_t start_, stop_;
};

class Replace : public Decoder {
 public:
  explicit Replace(const Field& field) : by_(field["content"].text()) {
    const Field pattern = field["pattern"];
    if (pattern.has("String")) {
      what_ = pattern["String"].text();
      if (what_.empty()) pattern.expect("a text that is not empty");
      return;
    }
    try {
      pattern_ = std::make_unique<Regex>(pattern["Regex"].text());
    } catch (const InvalidArgument& error) {
      pattern.fail("cannot be used: ", error.what());
    }
  }

  void apply(Pieces& pieces) const override {
    for (std::string& piece : pieces) {
      if (pattern_ == nullptr) {
        replace_all(piece, what_, by_);
        continue;
      }
      std::string out;
      std::size_t done = 0;
      pattern_->for_each(piece, [&](std::size_t begin, std::size_t end) {
        out.append(piece, done, begin - done);
        out += by_;
        done = end;
      });
      out.append(piece, done);
      piece.swap(out);
    }
  }

 private:
  std::string what_, by_;
  std::unique_ptr<Regex> pattern_;
};

class BpeDecoder : public Decoder {
 public:
  explicit BpeDecoder(const Field& field)
      : suffix_(field.text("suffix", "</w>")) {
    if (suffix_.empty()) field["suffix"].expect("a text that is not empty");
  }
  void apply(Pieces& pieces) const override {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      replace_all(pieces[i], suffix_, i + 1 == pieces.size() ? "" : " ");
    }
  }

 private:
  std::string suffix_;
};

class SentencePiece : public Decoder {
 public:
  explicit SentencePiece(const SentencePieceDecoderOptions& options)
      : options_(options) {}

  void apply(Pieces& pieces) const override {
    std::string text, bytes;
    bool at_start = true, blank_gone = false;
    const auto flush = [&] {
      for (std::string_view rest = bytes; !rest.empty();) {
        const Decoded next = decode_first(rest);
        append_utf8(text, next.code);
        rest.remove_prefix(next.length);
      }
      bytes.clear();
    };
    for (std::string& piece : pieces) {
      const auto byte =
          options_.byte_fallback ? byte_of_piece(piece) : std::nullopt;
      if (byte) {
        bytes.push_back(static_cast<char>(*byte));
        continue;
      }
      flush();
      if (blank_gone || !text.empty()) at_start = false;
      blank_gone = false;
      if (at_start && options_.strip_first && piece.starts_with(kBlank)) {
        piece.erase(0, kBlank.size());
        blank_gone = !options_.strip_all;
      }
      replace_all(piece, kBlank, " ");
      text += piece;
    }
    flush();
    pieces.assign(1, std::move(text));
  }

 private:
  SentencePieceDecoderOptions options_;
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(const Field& field) {
  if (field.is_null()) return nullptr;
  const std::string& type = field["type"].text();
  if (type == "Sequence") return std::make_unique<Sequence>(field);
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  if (type == "WordPiece") return std::make_unique<WordPiece>(field);
  if (type == "Metaspace") return std::make_unique<Metaspace>(field);
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Strip") return std::make_unique<Strip>(field);
  if (type == "Replace") return std::make_unique<Replace>(field);
  if (type == "BPEDecoder") return std::make_unique<BpeDecoder>(field);
  field.unknown_kind("decoder");
}

std::unique_ptr<Decoder> make_sentencepiece_decoder(
    const SentencePieceDecoderOptions& options) {
  return std::make_unique<SentencePiece>(options);
}

std::string with_replacements(std::string_view bytes) {
  const std::size_t bad = find_invalid_utf8(bytes);
  if (bad == std::string_view::npos) return std::string(bytes);
  std::string text(bytes.substr(0, bad));
  for (std::size_t at = bad; at < bytes.size();) {
    const Decoded next = decode_first(bytes.substr(at));
    if (next.valid) {
      text += bytes.substr(at, next.length);
      at += next.length;
      continue;
    }
    text += kReplacement;
    // On to the first byte that could not have come next: it is one that, with
    // as many bytes of a good character as there are after it, stays bad.
    const auto lead = static_cast<unsigned char>(bytes[at++]);
    const std::size_t wanted = lead >= 0xF0   ? 3
                               : lead >= 0xE0 ? 2
                               : lead >= 0xC2 ? 1
                                              : 0;
    if (lead > 0xF4) continue;
    for (std::size_t i = 0; i < wanted && at < bytes.size(); ++i, ++at) {
      const auto next_byte = static_cast<unsigned char>(bytes[at]);
      unsigned char low = 0x80, high = 0xBF;
      if (i == 0) {
        if (lead == 0xE0) low = 0xA0;
        if (lead == 0xED) high = 0x9F;
        if (lead == 0xF0) low = 0x90;
        if (lead == 0xF4) high = 0x8F;
      }
      if (next_byte < low || next_byte > high) break;
    }
  }
  return text;
}

}  // namespace regard::text
