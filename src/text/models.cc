// SPDX-License-Identifier: Apache-2.0
#include "text/models.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "regard/text/utf8.h"

namespace regard::text {
namespace {

std::uint32_t narrow(std::size_t size) {
  return static_cast<std::uint32_t>(size);
}

class WordLevel : public Model {
 public:
  WordLevel(const Vocabulary& vocabulary, std::int32_t unknown)
      : vocabulary_(vocabulary), unknown_(unknown) {}

  void encode(std::string_view word, std::vector<Piece>& out) const override {
    std::int32_t id = vocabulary_.find(word);
    if (id == kNone) id = unknown_;
    if (id != kNone) out.push_back({id, {0, narrow(word.size())}});
  }

 private:
  const Vocabulary& vocabulary_;
  std::int32_t unknown_;
};

class WordPiece : public Model {
 public:
  WordPiece(const Vocabulary& vocabulary, const WordPieceOptions& options)
      : options_(options) {
    std::vector<Trie::Entry> entries;
    for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
      entries.push_back({vocabulary.piece(id), id});
    }
    trie_ = Trie(std::move(entries));
    inner_ = trie_.walk(Trie::kRoot, options_.prefix);
  }

  void encode(std::string_view word, std::vector<Piece>& out) const override {
    const std::size_t before = out.size();
    if (longer_than_allowed(word)) {
      return out.push_back({options_.unknown, {0, narrow(word.size())}});
    }
    for (std::size_t at = 0; at < word.size();) {
      Trie::Found found;
      const Trie::Node start = at == 0 ? Trie::kRoot : inner_;
      if (start != Trie::kNowhere) {
        found = trie_.longest(word.substr(at), start);
      }
      if (found.id == kNone) {
        out.resize(before);
        return out.push_back({options_.unknown, {0, narrow(word.size())}});
      }
      out.push_back({found.id, {narrow(at), narrow(at + found.length)}});
      at += found.length;
    }
  }

 private:
  bool longer_than_allowed(std::string_view word) const {
    if (std::ssize(word) <= options_.longest_word) return false;
    std::int64_t count = 0;
    for (const char c : word) {
      count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    }
    return count > options_.longest_word;
  }

  WordPieceOptions options_;
  Trie trie_;
  Trie::Node inner_ = Trie::kNowhere;
};

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> pieces)
    : pieces_(std::move(pieces)), ids_(pieces_.size()) {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (!pieces_[i].empty()) {
      ids_.insert(pieces_[i], static_cast<std::int32_t>(i));
    }
  }
}

std::unique_ptr<Model> make_word_level(const Vocabulary& vocabulary,
                                       std::int32_t unknown) {
  return std::make_unique<WordLevel>(vocabulary, unknown);
}

std::unique_ptr<Model> make_word_piece(const Vocabulary& vocabulary,
                                       const WordPieceOptions& options) {
  return std::make_unique<WordPiece>(vocabulary, options);
}

char32_t byte_level_char(unsigned char byte) {
  static const std::array<char32_t, 256> chars = [] {
    std::array<char32_t, 256> table{};
    char32_t next = 256;
    for (unsigned i = 0; i < 256; ++i) {
      const bool seen = (i >= '!' && i <= '~') || (i >= 0xA1 && i != 0xAD);
      table[i] = seen ? i : next++;
    }
    return table;
  }();
  return chars[byte];
}

std::optional<unsigned char> byte_of_char(char32_t c) {
  static const std::array<std::int16_t, 512> bytes = [] {
    std::array<std::int16_t, 512> table;
    table.fill(-1);
    for (unsigned i = 0; i < 256; ++i) {
      table[byte_level_char(static_cast<unsigned char>(i))] =
          static_cast<std::int16_t>(i);
    }
    return table;
  }();
  if (c >= bytes.size() || bytes[c] < 0) return std::nullopt;
  return static_cast<unsigned char>(bytes[c]);
}

std::optional<std::string> byte_level_bytes(std::string_view piece) {
  std::string bytes;
  while (!piece.empty()) {
    const Decoded next = decode_first(piece);
    const auto byte = byte_of_char(next.code);
    if (!byte) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte));
    piece.remove_prefix(next.length);
  }
  return bytes;
}

std::string byte_piece(unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

std::optional<unsigned char> byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') {
    return std::nullopt;
  }
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    const char* digits = "0123456789ABCDEF";
    const char* place = std::strchr(digits, c);
    if (c == '\0' || place == nullptr) return std::nullopt;
    value = value * 16 + static_cast<int>(place - digits);
  }
  return static_cast<unsigned char>(value);
}

}  // namespace regard::text
