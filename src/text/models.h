// SPDX-License-Identifier: Apache-2.0
// What makes pieces of a word: the four kinds of models that tokenizers have.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tables.h"
#include "text/unicode.h"

namespace regard::text {

// Pieces by number. Numbers without a piece are empty.
class Vocabulary {
 public:
  explicit Vocabulary(std::vector<std::string> pieces);

  std::int32_t size() const {
    return static_cast<std::int32_t>(pieces_.size());
  }
  const std::string& piece(std::int32_t id) const {
    return pieces_[static_cast<std::size_t>(id)];
  }
  std::int32_t find(std::string_view piece) const { return ids_.find(piece); }
  const std::vector<std::string>& pieces() const { return pieces_; }

 private:
  std::vector<std::string> pieces_;
  PieceTable ids_;
};

// A piece of a word, with the bytes of the word that it stands for.
struct Piece {
  std::int32_t id = 0;
  Range bytes;
};

class Model {
 public:
  virtual ~Model() = default;
  // Appends the pieces of a word, which is UTF-8 and not empty.
  virtual void encode(std::string_view word, std::vector<Piece>& out) const = 0;
};

// The whole word, or `unknown`; nothing where that is kNone.
std::unique_ptr<Model> make_word_level(const Vocabulary& vocabulary,
                                       std::int32_t unknown);

struct WordPieceOptions {
  std::int32_t unknown = kNone;
  std::string prefix = "##";  // of pieces that do not start a word
  std::int64_t longest_word = 100;
};
// The longest piece that starts the word, then the longest that goes on, ...;
// `unknown` for the whole word where there is none.
std::unique_ptr<Model> make_word_piece(const Vocabulary& vocabulary,
                                       const WordPieceOptions& options);

struct UnigramOptions {
  std::int32_t unknown = kNone;
  bool byte_fallback = false;
  bool float_sums = false;  // as SentencePiece adds; Hugging Face: in double
  // SentencePiece's kinds of pieces, one for each: those that no text contains
  // and those that always win. Empty: all are normal.
  std::vector<bool> hidden = {};
  std::vector<bool> user_defined = {};
};
// The pieces with the highest sum of scores.
std::unique_ptr<Model> make_unigram(const Vocabulary& vocabulary,
                                    std::vector<double> scores,
                                    const UnigramOptions& options);

struct BpeOptions {
  std::int32_t unknown = kNone;  // kNone: what is unknown is left out
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a word that is a piece is that piece
  bool byte_level = false;     // pieces are written by byte_level_chars()
  std::string prefix = "";     // of pieces that do not start a word
  std::string suffix = "";     // of pieces that end one
};
struct MergeRule {
  std::int32_t left = 0, right = 0;
  Merge merge;
};
// Joins neighbours by the rules, the lowest rank first and the leftmost of
// equals. In time n log n.
std::unique_ptr<Model> make_bpe(const Vocabulary& vocabulary,
                                const std::vector<MergeRule>& rules,
                                const BpeOptions& options);

// SentencePiece's: two neighbours that make a piece together may be joined, the
// highest score first. `hidden` pieces are never made, and `user_defined` ones
// are there from the start and join nothing.
std::unique_ptr<Model> make_score_bpe(const Vocabulary& vocabulary,
                                      const std::vector<double>& scores,
                                      const UnigramOptions& options);

// GPT-2's way to write bytes as characters that can be seen.
char32_t byte_level_char(unsigned char byte);
std::optional<unsigned char> byte_of_char(char32_t c);
// The bytes of a piece, unless it holds another character.
std::optional<std::string> byte_level_bytes(std::string_view piece);

// "<0x41>" for 'A', and back.
std::string byte_piece(unsigned char byte);
std::optional<unsigned char> byte_of_piece(std::string_view piece);

}  // namespace regard::text
