// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace regard::text {

// The first three pieces of every vocabulary.
inline constexpr std::int32_t kUnknown = 0;
inline constexpr std::int32_t kBegin = 1;
inline constexpr std::int32_t kEnd = 2;

// Cuts text into the pieces of a fixed vocabulary, and joins them again.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::int64_t size() const = 0;  // of the vocabulary
  // The pieces of one line, without kBegin and kEnd. Throws InvalidArgument for
  // text that is not UTF-8.
  virtual std::vector<std::int32_t> encode(std::string_view line) const = 0;
  // The text of some pieces; kBegin, kEnd and tags leave no trace.
  virtual std::string decode(std::span<const std::int32_t> pieces) const = 0;
  // How a piece is written, and which one is written so: kUnknown where none.
  virtual std::string piece(std::int32_t id) const = 0;
  virtual std::int32_t id_of(std::string_view piece) const = 0;

  // A tokenizer is one file in a model's folder, which has no other: one of
  // another kind is removed.
  virtual void save(const std::filesystem::path& folder) const = 0;
};

// The tokenizer that save() wrote: tokenizer.model is SentencePiece's,
// vocabulary.txt one of words. Throws IoError where the folder has neither,
// ParseError where the file is broken.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder);

// Tags are pieces that no text contains, such as <2de> for "into German".
struct WordOptions {
  std::int64_t min_count = 1;
  std::vector<std::string> tags = {};
};

// For text that is cut already: each word between blanks is a piece, the most
// frequent first. A piece that ends in @@ is joined with the next one again, as
// subword-nmt writes it.
std::unique_ptr<Tokenizer> make_word_tokenizer(
    std::span<const std::string> lines, const WordOptions& options = {});

enum class PieceModel { kUnigram, kBpe };

struct SentencePieceOptions {
  PieceModel model = PieceModel::kUnigram;
  std::int64_t size = 8000;  // at most so many pieces
  // Share of the characters that have a piece, from 0.98 to 1; the others are
  // kUnknown.
  double coverage = 0.9998;
  std::vector<std::string> tags = {};
};

// Was the library built with SentencePiece? Without it the next function and
// load_tokenizer() throw InvalidArgument for its models.
bool sentencepiece_available();

// Learns pieces from running text. The text is not normalised, so that decode()
// gives back what encode() got, up to runs of blanks. The same lines give the
// same pieces. Throws InvalidArgument where the lines hold too little for the
// size, with SentencePiece's own words.
std::unique_ptr<Tokenizer> train_sentencepiece(
    std::span<const std::string> lines,
    const SentencePieceOptions& options = {});

}  // namespace regard::text
