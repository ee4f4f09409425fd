// SPDX-License-Identifier: Apache-2.0
// Which special tokens stand around a text, or around two.
#pragma once

#include <cstdint>
#include <vector>

#include "regard/text/tokenizer.h"
#include "text/field.h"
#include "text/models.h"

namespace regard::text {

class PostProcessor {
 public:
  struct Part {
    enum Kind { kToken, kFirst, kSecond } kind = kFirst;
    std::int32_t id = 0;  // of a token
    std::int32_t type = 0;
  };

  // The text alone; or one text after the other, of the types 0 and 1.
  PostProcessor();
  // As tokenizer.json describes it. Throws ParseError for a kind that is not
  // known, and for a token that is no piece.
  PostProcessor(const Field& field, std::int32_t vocab);
  PostProcessor(std::vector<Part> single, std::vector<Part> pair);

  // `second` may be null. Cuts them to options.max_length.
  Encoding join(Encoding first, Encoding* second,
                const EncodeOptions& options) const;

  // Are blanks no part of a piece's offsets?
  bool trims_offsets() const { return trims_; }
  bool keeps_first_blank() const { return keeps_first_blank_; }

 private:
  void read(const Field& field, std::int32_t vocab);

  std::vector<Part> single_, pair_;
  bool trims_ = false, keeps_first_blank_ = false;
};

}  // namespace regard::text
