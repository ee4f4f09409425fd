// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/io/gguf.h"
#include "regard/text/tokenizer.h"

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
class BytePairTokenizer : public Tokenizer {
 public:
  // Throws InvalidArgument where the parts do not fit together.
  explicit BytePairTokenizer(BytePairVocabulary vocabulary);
  BytePairTokenizer(BytePairTokenizer&&) noexcept;
  BytePairTokenizer& operator=(BytePairTokenizer&&) noexcept;
  ~BytePairTokenizer() override;

  // tokenizer.bin as llama2.c exports it: the pieces 0, 1 and 2 are unknown,
  // begin and end. Throws ParseError for a broken file, IoError for one that
  // cannot be read; both texts name the file.
  static BytePairTokenizer load_llama2c(const std::filesystem::path& path);
  static BytePairTokenizer parse_llama2c(std::span<const std::byte> bytes);
  // The tokenizer inside a model's file. Throws ParseError where there is none,
  // or one of another kind than "llama".
  static BytePairTokenizer from_gguf(const GgufFile& file);

  const BytePairVocabulary& vocabulary() const { return vocabulary_; }
  std::int64_t size() const override {
    return static_cast<std::int64_t>(vocabulary_.pieces.size());
  }
  SpecialIds special() const override {
    return {.unknown = vocabulary_.unknown,
            .begin = vocabulary_.begin,
            .end = vocabulary_.end};
  }

  using Tokenizer::decode;
  using Tokenizer::encode;
  // What is not UTF-8 becomes its bytes here, not U+FFFD. Special tokens are
  // not found in a text. Begin stands around a text, and end does not.
  Encoding encode(std::string_view text,
                  const EncodeOptions& options) const override;

  // What `token` adds to a text in which it follows `before`; the blank that
  // encode() put in front goes away after begin. Throws InvalidArgument for a
  // token that is none.
  std::string decode(std::int32_t before, std::int32_t token) const;
  // All of them, after begin. Only begin and end leave no trace.
  std::string decode(std::span<const std::int32_t> tokens,
                     SpecialTokens special) const override;

  std::string piece(std::int32_t id) const override;
  std::int32_t id_of(std::string_view piece) const override;
  // As llama2.c's tokenizer.bin.
  void save(const std::filesystem::path& folder) const override;

 private:
  BytePairVocabulary vocabulary_;
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

}  // namespace regard::text
