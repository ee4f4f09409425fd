// SPDX-License-Identifier: Apache-2.0
#include "text/pipeline.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "regard/core/error.h"
#include "regard/text/utf8.h"

namespace regard::text {
namespace {

constexpr std::string_view kBlank = "\xE2\x96\x81";
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

class Pipeline : public Tokenizer {
 public:
  explicit Pipeline(PipelineParts parts)
      : parts_(std::move(parts)),
        size_(parts_.vocabulary->size()),
        blanks_cut_(parts_.pre_tokenizer == nullptr ||
                    !parts_.pre_tokenizer->cuts()) {
    for (const AddedToken& token : parts_.added.tokens()) {
      size_ = std::max(size_, token.id + 1);
    }
  }

  std::int64_t size() const override { return size_; }
  SpecialIds special() const override { return parts_.special; }

  Encoding encode(std::string_view text,
                  const EncodeOptions& options) const override {
    return parts_.post_processor.join(cut(text, options), nullptr, options);
  }
  Encoding encode_pair(std::string_view first, std::string_view second,
                       const EncodeOptions& options) const override {
    Encoding other = cut(second, options);
    return parts_.post_processor.join(cut(first, options), &other, options);
  }

  std::string decode(std::span<const std::int32_t> ids,
                     SpecialTokens special) const override {
    std::vector<std::string> pieces;
    pieces.reserve(ids.size());
    for (const std::int32_t id : ids) {
      check(id);
      if (special == SpecialTokens::kSkip && is_special(id)) continue;
      const bool named =
          id == parts_.special.unknown && !parts_.unknown_text.empty();
      std::string text = named ? parts_.unknown_text : piece(id);
      // A number between those of pieces: it stands for nothing.
      if (!text.empty()) pieces.push_back(std::move(text));
    }
    std::string text;
    if (parts_.decoder != nullptr) {
      parts_.decoder->apply(pieces);
      for (const std::string& piece : pieces) text += piece;
    } else {
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        if (i > 0) text += ' ';
        text += pieces[i];
      }
    }
    return text;
  }

  std::string piece(std::int32_t id) const override {
    check(id);
    if (const AddedToken* token = parts_.added.find(id)) return token->content;
    if (id >= parts_.vocabulary->size()) return {};
    return parts_.vocabulary->piece(id);
  }

  std::int32_t id_of(std::string_view piece) const override {
    for (const AddedToken& token : parts_.added.tokens()) {
      if (token.content == piece) return token.id;
    }
    const std::int32_t id = parts_.vocabulary->find(piece);
    return id == kNone ? parts_.special.unknown : id;
  }

  void save(const std::filesystem::path& folder) const override {
    parts_.save(folder);
  }

 private:
  void check(std::int32_t id) const {
    require(id >= 0 && id < size_, "Tokenizer::piece",
            "pieces have numbers from 0 to ", size_ - 1, "; got ", id);
  }

  bool is_special(std::int32_t id) const {
    if (const AddedToken* token = parts_.added.find(id)) return token->special;
    const auto i = static_cast<std::size_t>(id);
    return i < parts_.control.size() && parts_.control[i];
  }

  // What one text becomes, as it goes.
  struct Work {
    const EncodeOptions& options;
    Encoding out;
    Words words;
    std::vector<AddedTokens::Part> inner;
    std::vector<Piece> pieces;
    Chars chars;
    std::string normalized;
    std::int32_t word = 0;  // the number of the next one

    void add(std::int32_t id, Range source) {
      out.ids.push_back(id);
      out.words.push_back(word);
      if (options.offsets) out.offsets.push_back({source.begin, source.end});
    }
  };

  Encoding cut(std::string_view text, const EncodeOptions& options) const {
    require(text.size() <= static_cast<std::size_t>(
                               std::numeric_limits<std::int32_t>::max()),
            "Tokenizer::encode", "a text may have 2^31 - 1 bytes; this has ",
            text.size());
    std::string repaired;
    std::vector<std::int64_t> places;  // of its bytes in the text that came
    const bool any_bytes =
        parts_.normalizer != nullptr && parts_.normalizer->takes_any_bytes();
    if (!any_bytes && find_invalid_utf8(text) != std::string_view::npos) {
      for (std::size_t at = 0; at < text.size();) {
        const Decoded next = decode_first(text.substr(at));
        const std::string_view bytes =
            next.valid ? text.substr(at, next.length) : kReplacement;
        repaired += bytes;
        for (std::size_t i = 0; i < bytes.size(); ++i) {
          places.push_back(
              static_cast<std::int64_t>(at + (next.valid ? i : 0)));
        }
        at += next.length;
      }
      places.push_back(std::ssize(text));
      text = repaired;
    }
    Work work{options, {}, {}, {}, {}, {}, {}};
    std::vector<AddedTokens::Part> outer;
    parts_.added.split(text, AddedTokens::Text::kAsItCame,
                       options.find_special_tokens, outer);
    for (const AddedTokens::Part& part : outer) {
      if (part.id != kNone) {
        add_token(
            part.id,
            text.substr(part.bytes.begin, part.bytes.end - part.bytes.begin),
            part.bytes, work);
      } else {
        cut_segment(
            text.substr(part.bytes.begin, part.bytes.end - part.bytes.begin),
            part.bytes.begin, work);
      }
    }
    if (!places.empty()) {
      for (ByteRange& range : work.out.offsets) {
        range.begin = places[static_cast<std::size_t>(range.begin)];
        range.end =
            std::max(range.begin, places[static_cast<std::size_t>(range.end)]);
      }
    }
    return std::move(work.out);
  }

  // An added token, and the white space that it took.
  void add_token(std::int32_t id, std::string_view text, Range source,
                 Work& work) const {
    if (work.options.offsets) {
      Blanks blanks;
      std::size_t begin = 0, end = text.size();
      while (begin < end) {
        const Decoded next = decode_first(text.substr(begin));
        if (!is_white_space(next.code)) break;
        begin += next.length;
        ++blanks.leading_chars;
      }
      while (end > begin && is_white_space(last_char(text.substr(0, end)))) {
        do {
          --end;
        } while (is_inside(text, end));
      }
      blanks.leading = static_cast<std::uint32_t>(begin);
      blanks.trailing = static_cast<std::uint32_t>(text.size() - end);
      trim(blanks, work, source);
    }
    work.add(id, source);
    ++work.word;
  }

  // What stands between added tokens: normalized, and cut at the added tokens
  // that are looked for only then.
  void cut_segment(std::string_view segment, std::uint32_t base,
                   Work& work) const {
    const bool track =
        work.options.offsets || (parts_.pre_tokenizer != nullptr &&
                                 parts_.pre_tokenizer->needs_source());
    std::vector<Range> from;
    if (parts_.normalizer != nullptr) {
      decode_utf8(segment, base, work.chars);
      parts_.normalizer->apply(work.chars);
      encode_utf8(work.chars, work.normalized);
      segment = work.normalized;
      for (const Char& c : work.chars) {
        if (!track) break;
        const std::size_t length = c.code < 0x80      ? 1
                                   : c.code < 0x800   ? 2
                                   : c.code < 0x10000 ? 3
                                                      : 4;
        from.insert(from.end(), length, c.from);
      }
    }
    parts_.added.split(segment, AddedTokens::Text::kNormalized,
                       work.options.find_special_tokens, work.inner);
    for (const AddedTokens::Part& part : work.inner) {
      const Range bytes = part.bytes;
      const std::string_view text =
          segment.substr(bytes.begin, bytes.end - bytes.begin);
      std::vector<Range> part_from;
      if (!from.empty()) {
        part_from.assign(from.begin() + bytes.begin, from.begin() + bytes.end);
      }
      work.words.start(text, base + bytes.begin, std::move(part_from), track);
      if (part.id != kNone) {
        add_token(
            part.id, text,
            work.words.source({0, static_cast<std::uint32_t>(text.size())}),
            work);
        continue;
      }
      if (parts_.pre_tokenizer != nullptr) {
        parts_.pre_tokenizer->apply(work.words);
      }
      for (std::size_t i = 0; i < work.words.words().size(); ++i) {
        cut_word(i, work);
      }
    }
  }

  void cut_word(std::size_t i, Work& work) const {
    const std::string_view word = work.words.word(i);
    if (word.empty()) return;
    work.pieces.clear();
    parts_.model->encode(word, work.pieces);
    const std::uint32_t base = work.words.words()[i].begin;
    bool first = true;
    for (const Piece& piece : work.pieces) {
      // Where nothing cut the text into words, blanks do.
      if (blanks_cut_ && !first &&
          word.substr(piece.bytes.begin).starts_with(kBlank) &&
          !word.substr(0, piece.bytes.begin).ends_with(kBlank)) {
        ++work.word;
      }
      first = false;
      Range source;
      if (work.options.offsets) {
        Range bytes = piece.bytes;
        // A part of a character stands for all of it.
        while (bytes.begin > 0 && is_inside(word, bytes.begin)) --bytes.begin;
        while (is_inside(word, bytes.end)) ++bytes.end;
        source = work.words.source({base + bytes.begin, base + bytes.end});
        Blanks blanks;
        while (bytes.begin + blanks.leading < bytes.end &&
               word[bytes.begin + blanks.leading] == ' ') {
          ++blanks.leading;
        }
        while (bytes.begin + blanks.trailing < bytes.end &&
               word[bytes.end - 1 - blanks.trailing] == ' ') {
          ++blanks.trailing;
        }
        blanks.leading_chars = blanks.leading;
        trim(blanks, work, source);
      }
      work.add(piece.id, source);
    }
    if (!first) ++work.word;
  }

  // White space at the ends of a piece, in bytes and in characters.
  struct Blanks {
    std::uint32_t leading = 0, trailing = 0, leading_chars = 0;
  };

  static bool is_inside(std::string_view text, std::size_t at) {
    return at < text.size() &&
           (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  }

  // Leaves the blanks at both ends of a piece out of its offsets, where the
  // model wants that.
  void trim(Blanks blanks, const Work& work, Range& source) const {
    if (!parts_.post_processor.trims_offsets()) return;
    const bool is_first = work.out.ids.empty() || source.begin == 0;
    if (is_first && parts_.post_processor.keeps_first_blank() &&
        blanks.leading_chars == 1) {
      blanks.leading = 0;  // it was put there
    }
    source.begin = std::min(source.begin + blanks.leading, source.end);
    if (source.end >= blanks.trailing) {
      source.end = std::max(source.end - blanks.trailing, source.begin);
    }
  }

  PipelineParts parts_;
  std::int32_t size_;
  bool blanks_cut_;  // words are what stands between blanks
};

}  // namespace

std::unique_ptr<Tokenizer> make_pipeline(PipelineParts parts) {
  return std::make_unique<Pipeline>(std::move(parts));
}

}  // namespace regard::text
