// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "regard/core/threads.h"

struct pcre2_real_code_8;
struct pcre2_real_match_context_8;

namespace regard::text {

// A regular expression as tokenizers write them (Oniguruma's syntax, UTF-8),
// compiled by PCRE2: to machine code where that is possible. Any number of
// threads may search with it.
class Regex {
 public:
  // Whose \w, \W, \b and \B: Oniguruma searches for the patterns of a
  // tokenizer's file, Rust's regex for those that Hugging Face's code has.
  enum class WordCharacters { kOniguruma, kRust };

  // Throws InvalidArgument with the reason for a pattern that PCRE2 does not
  // take, or would take for something else than Oniguruma does.
  explicit Regex(std::string_view pattern,
                 WordCharacters words = WordCharacters::kOniguruma);
  ~Regex();
  Regex(Regex&&) noexcept = default;
  Regex& operator=(Regex&&) noexcept = default;

  // A pattern that matches just this text.
  static std::string escaped(std::string_view text);

  // visit(begin, end) for each match in `text`, which is UTF-8, from left to
  // right. Throws InvalidArgument where a match takes too many steps.
  void for_each(
      std::string_view text,
      FunctionRef<void(std::size_t begin, std::size_t end)> visit) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
    void operator()(pcre2_real_match_context_8* context) const;
  };
  std::unique_ptr<pcre2_real_code_8, Free> code_;
  std::unique_ptr<pcre2_real_match_context_8, Free> limits_;
  bool compiled_ = false;  // to machine code
};

}  // namespace regard::text
