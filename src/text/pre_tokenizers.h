// SPDX-License-Identifier: Apache-2.0
// How a text is cut into words before a model cuts these into pieces.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/field.h"
#include "text/unicode.h"

namespace regard::text {

// A text on its way: words are ranges of `text`, and each byte of it knows the
// bytes of the source that it stands for.
class Words {
 public:
  // All of it is one word. Where `from` is empty, byte i came from byte
  // base + i of the source; `track` says whether that is kept for new text.
  void start(std::string_view text, std::uint32_t base, std::vector<Range> from,
             bool track);

  std::string_view text() const { return text_; }
  const std::vector<Range>& words() const { return words_; }
  std::string_view word(std::size_t i) const {
    return text_.substr(words_[i].begin, words_[i].end - words_[i].begin);
  }
  // Where a part of the text came from.
  Range source(Range bytes) const;

  // cut(word, keep): calls keep(begin, end) for the parts that stay.
  template <typename Cut>
  void split(const Cut& cut) {
    parts_.clear();
    for (const Range word : words_) {
      cut(text_.substr(word.begin, word.end - word.begin),
          [&](std::size_t begin, std::size_t end) {
            if (begin == end) return;
            parts_.push_back({word.begin + static_cast<std::uint32_t>(begin),
                              word.begin + static_cast<std::uint32_t>(end)});
          });
    }
    words_.swap(parts_);
  }
  // write(i, writer) writes word i anew.
  class Writer;
  template <typename Write>
  void rewrite(const Write& write);

 private:
  std::string_view text_;
  std::string own_;
  std::vector<Range> from_, words_, parts_;
  std::uint32_t base_ = 0;
  bool track_ = false, rewritten_ = false;
};

// New text, made of the old one.
class Words::Writer {
 public:
  explicit Writer(const Words& old) : old_(old) {
    text_.reserve(old.text_.size() + old.text_.size() / 8 + 8);
  }
  // Bytes that stand for a range of the old text, and that range itself.
  void put(std::string_view bytes, Range range) {
    text_ += bytes;
    if (old_.track_) {
      from_.insert(from_.end(), bytes.size(), old_.source(range));
    }
  }
  void copy(Range range) {
    text_ += old_.text_.substr(range.begin, range.end - range.begin);
    if (!old_.track_) return;
    for (std::uint32_t b = range.begin; b < range.end; ++b) {
      from_.push_back(old_.source({b, b + 1}));
    }
  }

 private:
  friend class Words;
  const Words& old_;
  std::string text_;
  std::vector<Range> from_;
};

template <typename Write>
void Words::rewrite(const Write& write) {
  Writer writer(*this);
  parts_.clear();
  for (std::size_t i = 0; i < words_.size(); ++i) {
    const auto begin = static_cast<std::uint32_t>(writer.text_.size());
    write(i, writer);
    parts_.push_back({begin, static_cast<std::uint32_t>(writer.text_.size())});
  }
  words_.swap(parts_);
  own_.swap(writer.text_);
  text_ = own_;
  from_.swap(writer.from_);
  base_ = 0;
  rewritten_ = true;
}

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Words& words) const = 0;
  // Does it cut text into words, or only rewrite it?
  virtual bool cuts() const { return true; }
  // Must words know where they came from, though nobody asked for it?
  virtual bool needs_source() const { return false; }
};

// As tokenizer.json describes it; null for null. Throws ParseError for a kind
// that is not known. A ByteLevel at the end leaves the bytes as they are and
// says so in `byte_level`, which a model can use.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Field& field,
                                                 bool& byte_level);

}  // namespace regard::text
