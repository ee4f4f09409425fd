// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/io/gguf.h"

namespace regard::text {

// The first three pieces of every vocabulary that is made here.
inline constexpr std::int32_t kUnknown = 0;
inline constexpr std::int32_t kBegin = 1;
inline constexpr std::int32_t kEnd = 2;

// The numbers of the pieces that mean something to a model; -1 where it has no
// such piece.
struct SpecialIds {
  std::int32_t unknown = -1;
  std::int32_t begin = -1;  // of a text
  std::int32_t end = -1;
  std::int32_t padding = -1;
  std::int32_t mask = -1;
  std::int32_t classify = -1;   // BERT's [CLS]
  std::int32_t separator = -1;  // and [SEP]
  bool operator==(const SpecialIds&) const = default;
};

// Bytes of a text, the end excluded.
struct ByteRange {
  std::int64_t begin = 0, end = 0;
  bool operator==(const ByteRange&) const = default;
};

struct EncodeOptions {
  // Begin, end, [CLS] and the like around the text, as the model was trained.
  bool add_special_tokens = true;
  // A text that contains "</s>" contains that token, as Hugging Face reads it.
  // False for texts of strangers: then it is as good as any other word.
  bool find_special_tokens = true;
  bool offsets = false;
  // At most so many pieces, special ones too; of a pair, the longer text is
  // cut. 0: never cut.
  std::int64_t max_length = 0;
};

// A text, or two, as pieces. All that is there has one element a piece.
struct Encoding {
  std::vector<std::int32_t> ids;
  // Which word of its text a piece belongs to, from 0 on; -1 for the special
  // tokens around it. Words are what the tokenizer cuts before it looks for
  // pieces, and where it does not, what stands between blanks.
  std::vector<std::int32_t> words;
  std::vector<std::int32_t> types;  // 0; of a pair, as the model wants it
  // Where asked for: the bytes of its text that a piece stands for. Blanks and
  // accents may count to the piece beside them.
  std::vector<ByteRange> offsets;
};

enum class SpecialTokens { kSkip, kKeep };

// Cuts text into the pieces of a fixed vocabulary, and joins them again. Any
// number of threads may use one at a time.
//
// Any bytes are a text: each byte that is not part of valid UTF-8 counts as
// U+FFFD. Time grows at most with n log n, and a text may have 2^31 - 1 bytes.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::int64_t size() const = 0;  // of the vocabulary
  virtual SpecialIds special() const = 0;

  virtual Encoding encode(std::string_view text,
                          const EncodeOptions& options) const = 0;
  // Two texts that a model reads together. Here: one after the other.
  virtual Encoding encode_pair(std::string_view first, std::string_view second,
                               const EncodeOptions& options) const;
  // The pieces alone, without special tokens around them.
  std::vector<std::int32_t> encode(std::string_view text) const;

  // The text of some pieces. Special ones and tags leave no trace, unless they
  // are to be kept. Throws InvalidArgument for a number that is no piece's.
  virtual std::string decode(std::span<const std::int32_t> ids,
                             SpecialTokens special) const = 0;
  std::string decode(std::span<const std::int32_t> ids) const {
    return decode(ids, SpecialTokens::kSkip);
  }

  // How a piece is written, and which one is written so: special().unknown
  // where none is.
  virtual std::string piece(std::int32_t id) const = 0;
  virtual std::int32_t id_of(std::string_view piece) const = 0;

  // Writes the files that load_tokenizer() reads. A folder has one tokenizer:
  // one of another kind that was made here is removed. Throws IoError, and
  // InvalidArgument for a tokenizer that came inside a model's file.
  virtual void save(const std::filesystem::path& folder) const = 0;
};

// Text as it is written piece by piece: next() gives what one more piece adds,
// which is nothing as long as a character is not complete.
class TextStream {
 public:
  // Borrows the tokenizer.
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  std::string next(std::int32_t id);
  // What is left where the text ends: the character that was not complete.
  std::string rest();

 private:
  const Tokenizer* tokenizer_;
  std::vector<std::int32_t> ids_;  // those that the next text depends on
  std::size_t read_ = 0;           // of them, the ones that were given out
};

// The tokenizer of a model: a folder, or one of its files. What it is, the file
// says:
//
//   tokenizer.json        Hugging Face's, any kind; tokenizer_config.json and
//                         special_tokens_map.json in its folder name special
//                         tokens
//   vocabulary.txt        words, as save() writes them
//   *.model, *.spm        SentencePiece: BPE or unigram
//   source.spm, target.spm and vocab.json     Marian
//   vocab.txt             BERT's WordPiece, with tokenizer_config.json
//   vocab.json and merges.txt                 GPT-2's byte-level BPE
//   *.gguf                the kinds llama, gpt2, bert and t5
//   tokenizer.bin         llama2.c's
//
// Throws IoError where there is none of them, ParseError for a broken file or
// a kind that is not known: the text names the file, the field and what was
// expected.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

// The tokenizer inside a GGUF file that is open.
std::unique_ptr<Tokenizer> load_tokenizer(const GgufFile& file);

// The same pieces under other numbers: those of a list, such as CTranslate2's
// vocabularies. Pieces that the list does not have are `unknown`, which must be
// one of its own. Throws InvalidArgument for a list without it.
std::unique_ptr<Tokenizer> renumbered(std::unique_ptr<Tokenizer> tokenizer,
                                      std::vector<std::string> pieces,
                                      std::string_view unknown);

// Tags are pieces that no text contains, such as <2de> for "into German".
struct WordOptions {
  std::int64_t min_count = 1;
  std::vector<std::string> tags = {};
};

// For text that is cut already: each word between blanks is a piece, the most
// frequent first. A piece that ends in @@ is joined with the next one again, as
// subword-nmt writes it. Unlike others, it refuses text that is not UTF-8 with
// InvalidArgument.
std::unique_ptr<Tokenizer> make_word_tokenizer(
    std::span<const std::string> lines, const WordOptions& options = {});

struct RunningWordOptions {
  std::int64_t size = 20000;  // at most so many pieces, the most frequent
  std::int64_t min_count = 1;
  bool lowercase = true;
  std::vector<std::string> tags = {};
};

// For running text: words, signs of punctuation and single Chinese characters
// are pieces, as BERT cuts text before it looks for pieces. The others are
// kUnknown. save() writes a tokenizer.json of the kind WordLevel, which Hugging
// Face's tokenizers read too.
std::unique_ptr<Tokenizer> make_running_word_tokenizer(
    std::span<const std::string> texts, const RunningWordOptions& options = {});

// Every byte of UTF-8 is a piece: 256 of them after the special ones. save()
// writes a tokenizer.json of the kind byte-level BPE without merges.
std::unique_ptr<Tokenizer> make_byte_tokenizer(
    const std::vector<std::string>& tags = {});

enum class PieceModel { kUnigram, kBpe };

struct SentencePieceOptions {
  PieceModel model = PieceModel::kUnigram;
  std::int64_t size = 8000;  // at most so many pieces
  // Share of the characters that have a piece, from 0.98 to 1; the others are
  // kUnknown.
  double coverage = 0.9998;
  std::vector<std::string> tags = {};
};

// Was the library built with SentencePiece? It is needed to learn pieces, not
// to use them: without it the next function throws InvalidArgument.
bool sentencepiece_available();

// Learns pieces from running text. The text is not normalised, so that decode()
// gives back what encode() got, up to runs of blanks. The same lines give the
// same pieces. Throws InvalidArgument where the lines hold too little for the
// size, with SentencePiece's own words.
std::unique_ptr<Tokenizer> train_sentencepiece(
    std::span<const std::string> lines,
    const SentencePieceOptions& options = {});

}  // namespace regard::text
