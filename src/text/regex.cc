// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>

#include <array>
#include <cstdint>

#include "io/quote.h"
#include "regard/core/error.h"

namespace regard::text {
namespace {

// Far more than any tokenizer's own pattern needs for a match, and less than a
// second: a pattern that backtracks without end is told so.
constexpr std::uint32_t kMatchLimit = 10'000'000;
constexpr std::uint32_t kHeapLimit = 64 * 1024;  // KiB
constexpr std::size_t kLongestPattern = 1 << 16;

// The members of \w, within a set and alone: Unicode's, in Rust. Oniguruma has
// the joiners in neither, and superscript digits and fractions of Latin-1 in
// the latter.
struct WordClass {
  std::string in_set, alone;
};
WordClass word_class(Regex::WordCharacters words) {
  const std::string common = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
  if (words == Regex::WordCharacters::kRust) {
    const std::string all = common + "\\x{200C}\\x{200D}";
    return {all, all};
  }
  return {common, common + "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}"};
}

// \b: where words of the characters in `set` begin or end.
std::string word_boundary(const std::string& set) {
  return "(?:(?<=" + set + ")(?!" + set + ")|(?<!" + set + ")(?=" + set + "))";
}

// Oniguruma's \s, \w and \b go by Unicode's White_Space and word characters;
// PCRE2's differ in a few. Sets inside sets, which PCRE2 takes for letters, are
// refused.
std::string translated(std::string_view pattern, Regex::WordCharacters words) {
  const WordClass word = word_class(words);
  std::string out;
  bool inside = false;  // a [set]
  std::size_t set_start = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's' || next == 'S') {
        out += next == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
      } else if (next == 'w') {
        out += inside ? word.in_set : "[" + word.alone + "]";
      } else if (next == 'W' && !inside) {
        out += "[^" + word.alone + "]";
      } else if (next == 'b' && !inside) {
        out += word_boundary("[" + word.alone + "]");
      } else if (next == 'B' && !inside) {
        out += "(?!" + word_boundary("[" + word.alone + "]") + ")";
      } else {
        require(next != 'h' && next != 'H' && next != 'W', "Regex", "\\", next,
                inside ? " in a set" : "", " is not supported");
        out += {c, next};
      }
      continue;
    }
    if (!inside) {
      inside = c == '[';
      set_start = i + 1;
      if (inside && i + 1 < pattern.size() && pattern[i + 1] == '^') {
        out += c;
        out += pattern[++i];
        set_start = i + 1;
        continue;
      }
    } else if (c == ']' && i != set_start) {
      inside = false;
    } else {
      require(c != '[' && pattern.substr(i, 2) != "&&", "Regex",
              "a set within a set is not supported");
    }
    out += c;
  }
  return out;
}

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 200> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

void Regex::Free::operator()(pcre2_code* code) const { pcre2_code_free(code); }
void Regex::Free::operator()(pcre2_match_context* context) const {
  pcre2_match_context_free(context);
}

Regex::~Regex() = default;

Regex::Regex(std::string_view pattern, WordCharacters words) {
  require(pattern.size() <= kLongestPattern, "Regex",
          "a pattern may have at most ", kLongestPattern, " bytes; this has ",
          pattern.size());
  const std::string ours = translated(pattern, words);
  int error = 0;
  PCRE2_SIZE place = 0;
  code_.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(ours.data()), ours.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
      &place, nullptr));
  require(code_ != nullptr, "Regex", "the pattern ", io::in_quotes(pattern),
          " does not compile: ", message_of(error));
  compiled_ = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;
  limits_.reset(pcre2_match_context_create(nullptr));
  if (limits_ == nullptr) throw std::bad_alloc();
  pcre2_set_match_limit(limits_.get(), kMatchLimit);
  pcre2_set_heap_limit(limits_.get(), kHeapLimit);
}

std::string Regex::escaped(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}-#&~/ ").find(c) !=
        std::string_view::npos) {
      pattern += '\\';
    }
    pattern += c;
  }
  return pattern;
}

void Regex::for_each(
    std::string_view text,
    FunctionRef<void(std::size_t begin, std::size_t end)> visit) const {
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> found(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  if (found == nullptr) throw std::bad_alloc();
  const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(found.get());
  const auto* const bytes = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (std::size_t at = 0; at <= text.size();) {
    int count = compiled_ ? pcre2_jit_match(code_.get(), bytes, text.size(), at,
                                            0, found.get(), limits_.get())
                          : PCRE2_ERROR_JIT_STACKLIMIT;
    // The interpreter keeps its state on the heap, within the limit.
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
      count = pcre2_match(code_.get(), bytes, text.size(), at,
                          PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, found.get(),
                          limits_.get());
    }
    if (count == PCRE2_ERROR_NOMATCH) return;
    // 0: more groups than the one that is asked for.
    require(count >= 0, "Regex", "the search for a pattern of the tokenizer ",
            "was given up: ", message_of(count));
    visit(ends[0], ends[1]);
    at = ends[1];
    if (ends[0] == ends[1]) {  // of nothing: on to the next character
      ++at;
      while (at < text.size() &&
             (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) {
        ++at;
      }
    }
  }
}

}  // namespace regard::text
