// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/normalizers.h"
#include "text/tables.h"
#include "text/unicode.h"

namespace regard::text {

// A piece that is found in a text before anything else is done with it.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  // no letter may touch it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // and after
  bool normalized = false;   // looked for in the normalized text
  bool special = false;      // leaves no trace in what is decoded
};

class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  const AddedToken* find(std::int32_t id) const;

  enum class Text { kAsItCame, kNormalized };
  struct Part {
    std::int32_t id = kNone;  // kNone: text
    Range bytes;
  };
  // The tokens in a text, and what is between them. `special`: those too.
  void split(std::string_view text, Text kind, bool special,
             std::vector<Part>& parts) const;

 private:
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::int32_t, std::size_t> places_;
  std::vector<std::string> contents_;  // as they are looked for
  Trie tries_[2];                      // by Text; their ids are places
};

}  // namespace regard::text
