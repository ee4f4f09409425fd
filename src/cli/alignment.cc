// SPDX-License-Identifier: Apache-2.0
#include "cli/alignment.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "cli/heat_map.h"
#include "regard/text/utf8.h"

namespace regard::cli {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";
constexpr std::string_view kOpen = "@@";  // the word goes on, where none is
                                          // marked at its beginning

// Of a script that writes blanks between words: pieces that meet in such
// characters are parts of one word. An apostrophe stands inside "isn't".
bool joins(char32_t c) {
  const bool letter_or_digit = (c >= U'0' && c <= U'9') ||
                               (c >= U'A' && c <= U'Z') ||
                               (c >= U'a' && c <= U'z');
  const bool further_alphabets = (c >= 0xC0 && c < 0x2000) && c != 0xD7;
  return letter_or_digit || further_alphabets || c == U'\'' || c == U'\u2019';
}

bool is_valid(std::string_view text) {
  return text::find_invalid_utf8(text) == std::string_view::npos;
}

// Of pieces that mark where a word begins.
bool continues(std::string_view before, std::string_view piece) {
  // The mark may be a piece of its own.
  if (before.empty() || piece.empty()) return true;
  if (!is_valid(before) || !is_valid(piece)) return false;
  return joins(text::code_points(before).back()) &&
         joins(text::code_points(piece).front());
}

}  // namespace

std::string piece_label(const std::string& piece) {
  if (!piece.starts_with(kMark)) return piece;
  std::string text(1, '_');
  text.append(piece, kMark.size());
  return text;
}

std::vector<AlignedWord> words_of(const std::vector<std::string>& pieces) {
  const bool marked = std::any_of(
      pieces.begin(), pieces.end(),
      [](std::string_view piece) { return piece.starts_with(kMark); });
  std::vector<AlignedWord> words;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    std::string_view piece = pieces[i];
    bool begins = words.empty() || piece.starts_with(kMark);
    if (piece.starts_with(kMark)) piece.remove_prefix(kMark.size());
    if (!begins) {
      std::string& before = words.back().text;
      const bool open = before.ends_with(kOpen);
      begins = marked ? !continues(before, piece) : !open;
      if (open && !marked) before.resize(before.size() - kOpen.size());
    }
    if (begins) words.push_back({.begin = i});
    words.back().text += piece;
    words.back().end = i + 1;
  }
  return words;
}

std::string draw_alignment(const tasks::Translation& translation,
                           const Screen& screen) {
  const auto rows = words_of(translation.target_pieces);
  const auto columns = words_of(translation.source_pieces);
  if (rows.empty() || columns.empty()) return {};
  HeatMaps::Sizes sizes;
  sizes.heads = 1;
  sizes.q_len = std::ssize(rows);
  sizes.kv_len = std::ssize(columns);
  HeatMaps::Labels labels;
  for (const AlignedWord& word : rows) labels.queries.push_back(word.text);
  for (const AlignedWord& word : columns) labels.keys.push_back(word.text);
  // A mean over heads: none has a name.
  HeatMaps map(sizes, std::move(labels), screen, {.titled = false});
  for (std::size_t row = 0; row < rows.size(); ++row) {
    // What a word got is the sum over its pieces, what it gave their mean.
    std::vector<float> weights(columns.size());
    for (std::size_t i = rows[row].begin; i < rows[row].end; ++i) {
      const std::vector<float>& given = translation.alignment[i];
      for (std::size_t column = 0; column < columns.size(); ++column) {
        for (std::size_t j = columns[column].begin; j < columns[column].end;
             ++j) {
          weights[column] +=
              given[j] / static_cast<float>(rows[row].end - rows[row].begin);
        }
      }
    }
    map.add_row(0, static_cast<std::int64_t>(row), weights.data());
  }
  return map.draw();
}

}  // namespace regard::cli
