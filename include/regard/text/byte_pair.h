// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "regard/io/gguf.h"

namespace regard::text {

// The pieces of a language model, with the order in which they are joined.
struct BytePairVocabulary {
  enum class Kind : std::uint8_t {
    kNormal,
    kControl,  // begin, end, unknown: never made from text
    kByte,     // "<0x41>" stands for one byte of what no other piece holds
  };
  std::vector<std::string> pieces;  // a blank is ' '
  std::vector<float> scores;        // higher ones are joined first
  std::vector<Kind> kinds;
  std::int32_t begin = 1;
  std::int32_t end = 2;
  std::int32_t unknown = 0;
};

// SentencePiece's byte-pair encoding, as Llama models carry it: text gets a
// blank in front, its characters become pieces, and of all neighbours that make
// a piece together, those with the highest score are joined, the leftmost
// first, until none is left. A character that is no piece becomes its bytes.
class BytePairTokenizer {
 public:
  // Throws InvalidArgument where the parts do not fit together.
  explicit BytePairTokenizer(BytePairVocabulary vocabulary);
  BytePairTokenizer(BytePairTokenizer&&) noexcept = default;
  BytePairTokenizer& operator=(BytePairTokenizer&&) noexcept = default;

  // tokenizer.bin as llama2.c exports it: the pieces 0, 1 and 2 are unknown,
  // begin and end. Throws ParseError for a broken file, IoError for one that
  // cannot be read; both texts name the file.
  static BytePairTokenizer load_llama2c(const std::filesystem::path& path);
  static BytePairTokenizer parse_llama2c(std::span<const std::byte> bytes);
  // The tokenizer inside a model's file. Throws ParseError where there is none,
  // or one of another kind than "llama".
  static BytePairTokenizer from_gguf(const GgufFile& file);

  const BytePairVocabulary& vocabulary() const { return vocabulary_; }
  std::int64_t size() const {
    return static_cast<std::int64_t>(vocabulary_.pieces.size());
  }

  // Without begin and end. Any bytes are a text: what is not UTF-8 becomes
  // bytes. Time grows with n log n.
  std::vector<std::int32_t> encode(std::string_view text) const;

  // What `token` adds to a text in which it follows `before`; the blank that
  // encode() put in front goes away after begin. Throws InvalidArgument for a
  // token that is none.
  std::string decode(std::int32_t before, std::int32_t token) const;
  // All of them, after begin.
  std::string decode(std::span<const std::int32_t> tokens) const;

 private:
  BytePairVocabulary vocabulary_;
  // The pieces that text may become; views of vocabulary_.pieces, whose
  // elements never move.
  std::unordered_map<std::string_view, std::int32_t> ids_;
  std::array<std::int32_t, 256> bytes_{};  // unknown where there is no piece
};

}  // namespace regard::text
