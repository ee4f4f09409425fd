// SPDX-License-Identifier: Apache-2.0
// How pieces become text again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/field.h"

namespace regard::text {

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Changes pieces, in their number too; their texts in a row are the result.
  virtual void apply(std::vector<std::string>& pieces) const = 0;
};

// As tokenizer.json describes it; null for null. Throws ParseError for a kind
// that is not known.
std::unique_ptr<Decoder> make_decoder(const Field& field);

// SentencePiece's: "<0x41>" are bytes where `byte_fallback`, blanks are U+2581,
// and one (or, with `strip`, every one) goes away where a text starts.
struct SentencePieceDecoderOptions {
  bool byte_fallback = false;
  bool strip_first = true;
  bool strip_all = true;
};
std::unique_ptr<Decoder> make_sentencepiece_decoder(
    const SentencePieceDecoderOptions& options);

// What is not UTF-8 replaced by U+FFFD: one for each longest start of a
// character that is cut short, as Unicode recommends.
std::string with_replacements(std::string_view bytes);

}  // namespace regard::text
