// SPDX-License-Identifier: Apache-2.0
// What is done to a text before it is cut.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/field.h"
#include "text/tables.h"
#include "text/unicode.h"

namespace regard::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(Chars& chars) const = 0;
  // Does it tell bytes that are not UTF-8 (U+FFFD from one byte) from U+FFFD?
  virtual bool takes_any_bytes() const { return false; }
};

// As tokenizer.json describes it; null for null. Throws ParseError for a kind
// that is not known.
std::unique_ptr<Normalizer> make_normalizer(const Field& field);

struct SentencePieceNormalizerOptions {
  std::string charsmap = "";
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
  bool whitespace_as_suffix = false;
  std::vector<std::string> user_defined = {};  // left as they are
};
// Throws InvalidArgument for a charsmap that is none.
std::unique_ptr<Normalizer> make_sentencepiece_normalizer(
    const SentencePieceNormalizerOptions& options);

}  // namespace regard::text
