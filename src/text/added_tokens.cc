// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "text/regex.h"

namespace regard::text {
namespace {

bool is_word_char(char32_t c) {
  if (c < 0x80) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_';
  }
  static const Regex word("\\w", Regex::WordCharacters::kRust);
  bool found = false;
  std::string text;
  encode_utf8({{c, {}}}, text);
  word.for_each(text, [&](std::size_t, std::size_t) { found = true; });
  return found;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens,
                         const Normalizer* normalizer)
    : tokens_(std::move(tokens)) {
  std::vector<Trie::Entry> entries[2];
  contents_.reserve(tokens_.size());
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    AddedToken& token = tokens_[i];
    places_[token.id] = i;
    std::string content = token.content;
    if (token.normalized && normalizer != nullptr) {
      Chars chars;
      decode_utf8(content, 0, chars);
      normalizer->apply(chars);
      encode_utf8(chars, content);
    }
    contents_.push_back(std::move(content));
    entries[token.normalized ? 1 : 0].push_back(
        {contents_.back(), static_cast<std::int32_t>(i)});
  }
  for (int i = 0; i < 2; ++i) tries_[i] = Trie(std::move(entries[i]));
}

const AddedToken* AddedTokens::find(std::int32_t id) const {
  const auto found = places_.find(id);
  return found == places_.end() ? nullptr : &tokens_[found->second];
}

void AddedTokens::split(std::string_view text, Text kind, bool special,
                        std::vector<Part>& parts) const {
  parts.clear();
  const Trie& trie = tries_[kind == Text::kNormalized ? 1 : 0];
  std::size_t done = 0;
  const auto range = [](std::size_t begin, std::size_t end) {
    return Range{static_cast<std::uint32_t>(begin),
                 static_cast<std::uint32_t>(end)};
  };
  for (std::size_t at = 0; at < text.size();) {
    if (trie.step(Trie::kRoot, text[at]) == Trie::kNowhere) {
      ++at;
      continue;
    }
    const Trie::Found found = trie.longest(text.substr(at));
    if (found.id == kNone) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(found.id)];
    std::size_t begin = at, end = at + found.length;
    at = end;
    if (token.special && !special) continue;
    if (token.single_word &&
        ((begin > 0 && is_word_char(last_char(text.substr(0, begin)))) ||
         (end < text.size() &&
          is_word_char(decode_first(text.substr(end)).code)))) {
      continue;
    }
    if (token.lstrip) {
      while (begin > done && is_white_space(last_char(text.substr(0, begin)))) {
        do {
          --begin;
        } while ((static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80);
      }
    }
    if (token.rstrip) {
      while (end < text.size()) {
        const Decoded next = decode_first(text.substr(end));
        if (!is_white_space(next.code)) break;
        end += next.length;
      }
      at = std::max(at, end);
    }
    if (begin > done) parts.push_back({kNone, range(done, begin)});
    parts.push_back({token.id, range(std::max(begin, done), end)});
    done = end;
  }
  if (done < text.size()) parts.push_back({kNone, range(done, text.size())});
}

}  // namespace regard::text
