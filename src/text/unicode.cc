// SPDX-License-Identifier: Apache-2.0
#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "regard/text/utf8.h"

namespace regard::text {
namespace {

constexpr char32_t kDottedI = 0x130;

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

int combining_class(char32_t c) {
  return c < 0x300 ? 0
                   : utf8proc_get_property(static_cast<utf8proc_int32_t>(c))
                         ->combining_class;
}

// Ranges that no normal form but KC and KD changes, and that combine with
// nothing: most text is made of them, and is left alone without a look at it.
bool is_stable(char32_t c, NormalForm form) {
  if (c < 0x80) return true;
  if (c >= 0x4E00 && c <= 0x9FFF) return true;
  if (form != NormalForm::kC) return false;
  return c < 0x300 || (c >= 0x2010 && c <= 0x2027) ||
         (c >= 0x3000 && c <= 0x3029) || (c >= 0xFF00 && c <= 0xFFEF);
}

void decompose(Chars& chars, bool compatible) {
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  Chars out;
  out.reserve(chars.size());
  std::array<utf8proc_int32_t, 32> parts;  // the longest has 18
  for (const Char& c : chars) {
    if (c.code < 0x80) {
      out.push_back(c);
      continue;
    }
    int boundary = 0;
    const auto count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(c.code), parts.data(),
        static_cast<utf8proc_ssize_t>(parts.size()), options, &boundary);
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      out.push_back(
          {static_cast<char32_t>(parts[static_cast<std::size_t>(i)]), c.from});
    }
  }
  // Marks in the order of their classes. utf8proc's own sort is quadratic.
  for (std::size_t i = 0; i < out.size();) {
    std::size_t end = i;
    while (end < out.size() && combining_class(out[end].code) != 0) ++end;
    if (end - i > 1) {
      std::stable_sort(out.begin() + static_cast<std::ptrdiff_t>(i),
                       out.begin() + static_cast<std::ptrdiff_t>(end),
                       [](const Char& a, const Char& b) {
                         return combining_class(a.code) <
                                combining_class(b.code);
                       });
    }
    i = end + 1;
  }
  chars.swap(out);
}

// Compositions never leave a grapheme cluster, so each is composed alone and
// its characters share where they came from.
void compose(Chars& chars) {
  Chars out;
  out.reserve(chars.size());
  std::vector<utf8proc_int32_t> codes;
  for_each_cluster(chars, [&](std::size_t first, std::size_t end) {
    if (end - first == 1) {
      out.push_back(chars[first]);
      return;
    }
    codes.clear();
    Range from = chars[first].from;
    for (std::size_t i = first; i < end; ++i) {
      codes.push_back(static_cast<utf8proc_int32_t>(chars[i].code));
      from.begin = std::min(from.begin, chars[i].from.begin);
      from.end = std::max(from.end, chars[i].from.end);
    }
    const auto count = utf8proc_normalize_utf32(
        codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    if (count == static_cast<utf8proc_ssize_t>(end - first)) {
      out.insert(out.end(), chars.begin() + static_cast<std::ptrdiff_t>(first),
                 chars.begin() + static_cast<std::ptrdiff_t>(end));
      return;
    }
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      out.push_back(
          {static_cast<char32_t>(codes[static_cast<std::size_t>(i)]), from});
    }
  });
  chars.swap(out);
}

}  // namespace

char32_t last_char(std::string_view text) {
  std::size_t i = text.size();
  while (i > 0 && (static_cast<unsigned char>(text[--i]) & 0xC0) == 0x80) {
  }
  return decode_first(text.substr(i)).code;
}

void decode_utf8(std::string_view text, std::uint32_t base, Chars& chars) {
  chars.clear();
  chars.reserve(text.size());
  for (std::uint32_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const Decoded next =
        first < 0x80 ? Decoded{first, 1, true} : decode_first(text.substr(i));
    chars.push_back({next.code, {base + i, base + i + next.length}});
    i += next.length;
  }
}

void encode_utf8(const Chars& chars, std::string& text) {
  text.clear();
  text.reserve(chars.size());
  for (const Char& c : chars) {
    if (c.code < 0x80) {
      text.push_back(static_cast<char>(c.code));
    } else {
      append_utf8(text, c.code);
    }
  }
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  switch (category(c)) {
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return true;
    default:
      return c == 0x85;
  }
}

bool is_punctuation(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_mark(char32_t c) {
  return c >= 0x300 && category(c) == UTF8PROC_CATEGORY_MN;
}

bool is_any_mark(char32_t c) {
  if (c < 0x300) return false;
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
}

bool is_other(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF ||
         kind == UTF8PROC_CATEGORY_CO;
}

void lower_case(Chars& chars) {
  bool dotted = false;
  for (Char& c : chars) {
    if (c.code < 0x80) {
      if (c.code >= 'A' && c.code <= 'Z') c.code += 'a' - 'A';
    } else if (c.code == kDottedI) {
      dotted = true;
    } else {
      c.code = static_cast<char32_t>(
          utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code)));
    }
  }
  if (!dotted) return;
  Chars out;
  for (const Char& c : chars) {
    out.push_back(c);
    if (c.code != kDottedI) continue;
    out.back().code = 'i';
    out.push_back({0x307, c.from});
  }
  chars.swap(out);
}

void normalize(Chars& chars, NormalForm form) {
  if (std::all_of(chars.begin(), chars.end(),
                  [form](const Char& c) { return is_stable(c.code, form); })) {
    return;
  }
  decompose(chars, form == NormalForm::kKC || form == NormalForm::kKD);
  if (form == NormalForm::kC || form == NormalForm::kKC) compose(chars);
}

bool cluster_ends(char32_t before, char32_t after, std::int32_t& state) {
  return utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before),
                                          static_cast<utf8proc_int32_t>(after),
                                          &state);
}

}  // namespace regard::text
