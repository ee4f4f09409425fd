// SPDX-License-Identifier: Apache-2.0
#include "cli/text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace regard::cli {
namespace {

constexpr char32_t kReplacement = 0xfffd;

struct Range {
  char32_t first;
  char32_t last;
};

// Of Unicode's East Asian Width, the classes W and F, in large steps.
constexpr std::array<Range, 16> kWide = {{{0x1100, 0x115f},
                                          {0x2e80, 0x303e},
                                          {0x3041, 0x33ff},
                                          {0x3400, 0x4dbf},
                                          {0x4e00, 0x9fff},
                                          {0xa000, 0xa4cf},
                                          {0xa960, 0xa97c},
                                          {0xac00, 0xd7a3},
                                          {0xf900, 0xfaff},
                                          {0xfe30, 0xfe6b},
                                          {0xff01, 0xff60},
                                          {0xffe0, 0xffe6},
                                          {0x1f300, 0x1f64f},
                                          {0x1f680, 0x1f6ff},
                                          {0x1f900, 0x1f9ff},
                                          {0x20000, 0x3fffd}}};

// Marks that are drawn onto the character before them, and joiners.
constexpr std::array<Range, 7> kCombining = {{{0x0300, 0x036f},
                                              {0x1ab0, 0x1aff},
                                              {0x1dc0, 0x1dff},
                                              {0x200b, 0x200f},
                                              {0x20d0, 0x20ff},
                                              {0xfe00, 0xfe0f},
                                              {0xfe20, 0xfe2f}}};

template <std::size_t n>
bool is_in(char32_t c, const std::array<Range, n>& ranges) {
  return std::any_of(ranges.begin(), ranges.end(), [c](const Range& r) {
    return c >= r.first && c <= r.last;
  });
}

// Characters that turn or hide the text around them, besides C0 and C1.
bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 ||
         (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

// Takes one code point from the front of the text, or one bad byte.
char32_t take(std::string_view& text) {
  const auto byte = [&text](std::size_t i) {
    return static_cast<unsigned char>(text[i]);
  };
  const unsigned first = byte(0);
  std::size_t length = 1;
  char32_t c = first;
  char32_t least = 0;
  if (first >= 0xf0 && first < 0xf8) {
    length = 4, c = first & 0x07u, least = 0x10000;
  } else if (first >= 0xe0 && first < 0xf0) {
    length = 3, c = first & 0x0fu, least = 0x800;
  } else if (first >= 0xc0 && first < 0xe0) {
    length = 2, c = first & 0x1fu, least = 0x80;
  } else if (first >= 0x80) {
    c = kReplacement;
  }
  bool good = length <= text.size();
  for (std::size_t i = 1; good && i < length; ++i) {
    good = (byte(i) & 0xc0u) == 0x80;
    c = (c << 6) | (byte(i) & 0x3fu);
  }
  const bool surrogate = c >= 0xd800 && c <= 0xdfff;
  if (!good || c < least || c > 0x10ffff || surrogate) {
    text.remove_prefix(1);
    return kReplacement;
  }
  text.remove_prefix(length);
  return c;
}

std::string encoded(char32_t c) {
  const auto tail = [c](int shift) {
    return static_cast<char>(0x80u | ((c >> shift) & 0x3fu));
  };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xc0u | (c >> 6)), tail(0)};
  if (c < 0x10000) {
    return {static_cast<char>(0xe0u | (c >> 12)), tail(6), tail(0)};
  }
  return {static_cast<char>(0xf0u | (c >> 18)), tail(12), tail(6), tail(0)};
}

bool is_space(const Glyph& glyph) {
  // U+3000 is the blank between Chinese words.
  return glyph.text == " " || glyph.text == "\u3000" || glyph.text == "\u00a0";
}

}  // namespace

std::vector<Glyph> glyphs_of(std::string_view text) {
  std::vector<Glyph> glyphs;
  while (!text.empty()) {
    char32_t c = take(text);
    if (c == '\t' || c == '\n' || c == '\r') c = ' ';
    if (is_control(c)) c = kReplacement;
    if (is_in(c, kCombining)) {
      if (!glyphs.empty()) glyphs.back().text += encoded(c);
      continue;
    }
    glyphs.push_back({encoded(c), is_in(c, kWide) ? 2 : 1});
  }
  return glyphs;
}

int cells_of(std::string_view text) {
  int cells = 0;
  for (const Glyph& glyph : glyphs_of(text)) cells += glyph.cells;
  return cells;
}

std::string fitted(std::string_view text, int cells) {
  std::string result;
  for (const Glyph& glyph : glyphs_of(text)) {
    if (glyph.cells > cells) break;
    result += glyph.text;
    cells -= glyph.cells;
  }
  return result.append(static_cast<std::size_t>(std::max(cells, 0)), ' ');
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto finish = [&words, &word] {
    if (!word.empty()) words.push_back(std::exchange(word, {}));
  };
  for (const Glyph& glyph : glyphs_of(text)) {
    if (is_space(glyph)) {
      finish();
    } else if (glyph.cells == 2) {
      finish();
      words.push_back(glyph.text);
    } else {
      word += glyph.text;
    }
  }
  finish();
  return words;
}

std::string wrapped(std::string_view text, int indent, int width) {
  const std::string margin(static_cast<std::size_t>(indent), ' ');
  std::string result = margin;
  int used = indent;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const int cells = cells_of(word);
    if (used > indent && used + 1 + cells > width) {
      result += "\n" + margin;
      used = indent;
    }
    if (used > indent) result += ' ', ++used;
    result += word;
    used += cells;
  }
  return result + "\n";
}

std::size_t control_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x20 || first == 0x7f) return 1;
  if (first != 0xc2 || text.size() < 2) return 0;
  const auto second = static_cast<unsigned char>(text[1]);
  return second >= 0x80 && second < 0xa0 ? 2 : 0;
}

std::string on_one_line(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string result;
  while (!text.empty()) {
    const std::size_t control = control_bytes(text);
    for (const char c : text.substr(0, control)) {
      const auto byte = static_cast<unsigned char>(c);
      result += "\\x";
      result += kDigits[byte >> 4];
      result += kDigits[byte & 15];
    }
    if (control == 0) result += text.front();
    text.remove_prefix(std::max<std::size_t>(control, 1));
  }
  return result;
}

}  // namespace regard::cli
