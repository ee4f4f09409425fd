// SPDX-License-Identifier: Apache-2.0
#include "regard/text/byte_pair.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "io/atomic_file.h"
#include "io/quote.h"
#include "io/read_file.h"
#include "regard/core/error.h"
#include "text/models.h"

namespace regard::text {
namespace {

using Kind = BytePairVocabulary::Kind;

// Each piece is looked at from each of its places on.
constexpr std::size_t kLongestPiece = 512;

BytePairTokenizer read_llama2c(std::string_view bytes,
                               const std::string& where) {
  const char* const name = where.c_str();
  std::size_t at = 0;
  const auto number = [&](auto& value, const char* what) {
    if (bytes.size() - at < sizeof(value)) {
      throw_parse_error(name, "the file ends within ", what, " at byte ", at);
    }
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    at += sizeof(value);
  };
  std::int32_t longest = 0;
  number(longest, "the length of the longest piece");
  if (longest <= 0) {
    throw_parse_error(name, "the longest piece must have a length; it is ",
                      longest, " (is it llama2.c's tokenizer.bin?)");
  }
  BytePairVocabulary vocabulary;
  while (at < bytes.size()) {
    float score = 0;
    std::int32_t length = 0;
    number(score, "a score");
    number(length, "the length of a piece");
    const std::size_t id = vocabulary.pieces.size();
    if (length < 0 || static_cast<std::size_t>(length) > bytes.size() - at) {
      throw_parse_error(name, "piece ", id, " says that it has ", length,
                        " bytes; ", bytes.size() - at, " are left");
    }
    if (static_cast<std::size_t>(length) > kLongestPiece) {
      throw_parse_error(name, "a piece has at most ", kLongestPiece,
                        " bytes; piece ", id, " has ", length);
    }
    if (!std::isfinite(score)) {
      throw_parse_error(name, "the score of piece ", id, " is no number");
    }
    vocabulary.pieces.emplace_back(
        bytes.substr(at, static_cast<std::size_t>(length)));
    at += static_cast<std::size_t>(length);
    vocabulary.scores.push_back(score);
    vocabulary.kinds.push_back(id < 3 ? Kind::kControl
                               : byte_of_piece(vocabulary.pieces.back())
                                   ? Kind::kByte
                                   : Kind::kNormal);
  }
  if (vocabulary.pieces.size() < 3) {
    throw_parse_error(name, "a vocabulary has at least three pieces; this has ",
                      vocabulary.pieces.size());
  }
  return BytePairTokenizer(std::move(vocabulary));
}

// SentencePiece writes a blank as U+2581.
std::string with_blanks(std::string_view piece) {
  constexpr std::string_view kBlank = "\xe2\x96\x81";
  std::string text;
  for (std::size_t i = 0; i < piece.size();) {
    if (piece.substr(i).starts_with(kBlank)) {
      text += ' ';
      i += kBlank.size();
    } else {
      text += piece[i++];
    }
  }
  return text;
}

}  // namespace

struct BytePairTokenizer::Parts {
  explicit Parts(const BytePairVocabulary& v) : vocabulary(v.pieces) {
    UnigramOptions options;
    options.unknown = v.unknown;
    options.byte_fallback = true;
    for (const Kind kind : v.kinds) {
      options.hidden.push_back(kind != Kind::kNormal);
    }
    model = make_score_bpe(
        vocabulary, std::vector<double>(v.scores.begin(), v.scores.end()),
        options);
  }
  Vocabulary vocabulary;
  std::unique_ptr<Model> model;
};

BytePairTokenizer::BytePairTokenizer(BytePairTokenizer&&) noexcept = default;
BytePairTokenizer& BytePairTokenizer::operator=(BytePairTokenizer&&) noexcept =
    default;
BytePairTokenizer::~BytePairTokenizer() = default;

BytePairTokenizer::BytePairTokenizer(BytePairVocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)) {
  constexpr const char* kWhere = "BytePairTokenizer";
  const BytePairVocabulary& v = vocabulary_;
  const std::size_t n = v.pieces.size();
  require(
      n <= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()),
      kWhere, "a vocabulary has fewer than 2^31 pieces; this has ", n);
  require(v.scores.size() == n && v.kinds.size() == n, kWhere,
          "each piece has a score and a kind; there are ", n, " pieces, ",
          v.scores.size(), " scores and ", v.kinds.size(), " kinds");
  for (const std::int32_t id : {v.begin, v.end, v.unknown}) {
    require(id >= 0 && static_cast<std::size_t>(id) < n, kWhere,
            "begin, end and unknown must be pieces; there are ", n, ", got ",
            id);
  }
  for (std::size_t i = 0; i < n; ++i) {
    require(v.pieces[i].size() <= kLongestPiece, kWhere, "a piece has at most ",
            kLongestPiece, " bytes; piece ", i, " has ", v.pieces[i].size());
    require(std::isfinite(v.scores[i]), kWhere, "the score of piece ", i,
            " is no number");
    if (v.kinds[i] == Kind::kByte) {
      const auto byte = byte_of_piece(v.pieces[i]);
      require(byte.has_value(), kWhere, "piece ", i,
              " is to be a byte, but is not written as one");
    }
  }
  parts_ = std::make_unique<const Parts>(v);
}

BytePairTokenizer BytePairTokenizer::load_llama2c(
    const std::filesystem::path& path) {
  constexpr const char* kWhere = "BytePairTokenizer::load_llama2c";
  return read_llama2c(io::read_regular(path, kWhere),
                      std::string(kWhere) + ": '" + path.string() + "'");
}

BytePairTokenizer BytePairTokenizer::parse_llama2c(
    std::span<const std::byte> bytes) {
  return read_llama2c(
      {reinterpret_cast<const char*>(bytes.data()), bytes.size()},
      "BytePairTokenizer::parse_llama2c");
}

BytePairTokenizer BytePairTokenizer::from_gguf(const GgufFile& file) {
  const char* const where = file.where().c_str();
  const auto model = file.text("tokenizer.ggml.model");
  if (!model) throw_parse_error(where, "the file has no tokenizer");
  if (*model != "llama") {
    throw_parse_error(where, "only tokenizers of the kind 'llama' are read; ",
                      "this is ", io::in_quotes(*model));
  }
  const auto pieces = file.texts("tokenizer.ggml.tokens");
  const auto scores = file.reals("tokenizer.ggml.scores");
  const auto types = file.integers("tokenizer.ggml.token_type");
  if (!pieces || !scores || !types) {
    throw_parse_error(where, "the tokenizer needs tokens, scores and types");
  }
  const std::size_t n = pieces->size();
  if (scores->size() != n || types->size() != n) {
    throw_parse_error(where, "each token has a score and a type; there are ", n,
                      " tokens, ", scores->size(), " scores and ",
                      types->size(), " types");
  }
  BytePairVocabulary v;
  const auto id = [&](const char* key, std::int32_t otherwise) {
    const std::int64_t value = file.integer(key).value_or(otherwise);
    if (value < 0 || value >= static_cast<std::int64_t>(n)) {
      throw_parse_error(where, key, " must be one of the ", n,
                        " tokens; it is ", value);
    }
    return static_cast<std::int32_t>(value);
  };
  v.begin = id("tokenizer.ggml.bos_token_id", v.begin);
  v.end = id("tokenizer.ggml.eos_token_id", v.end);
  v.unknown = id("tokenizer.ggml.unknown_token_id", v.unknown);
  constexpr std::int64_t kNormalType = 1, kUserType = 4, kByteType = 6;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t type = (*types)[i];
    const double score = (*scores)[i];
    if (!std::isfinite(static_cast<float>(score))) {
      throw_parse_error(where, "the score of token ", i, " is no number");
    }
    if ((*pieces)[i].size() > kLongestPiece) {
      throw_parse_error(where, "a token has at most ", kLongestPiece,
                        " bytes; token ", i, " has ", (*pieces)[i].size());
    }
    if (type == kByteType && !byte_of_piece((*pieces)[i])) {
      throw_parse_error(where, "token ", i,
                        " is to be a byte, but is not written as one");
    }
    v.pieces.push_back(with_blanks((*pieces)[i]));
    v.scores.push_back(static_cast<float>(score));
    v.kinds.push_back(type == kByteType ? Kind::kByte
                      : type == kNormalType || type == kUserType
                          ? Kind::kNormal
                          : Kind::kControl);
  }
  return BytePairTokenizer(std::move(v));
}

Encoding BytePairTokenizer::encode(std::string_view text,
                                   const EncodeOptions& options) const {
  const std::int64_t around = options.add_special_tokens ? 1 : 0;
  require(options.max_length == 0 || options.max_length > around,
          "Tokenizer::encode", "max_length must leave room beside ", around,
          " special tokens; it is ", options.max_length);
  Encoding encoding;
  const auto add = [&](std::int32_t id, std::int32_t word, ByteRange range) {
    if (options.max_length > 0 &&
        std::ssize(encoding.ids) == options.max_length) {
      return;
    }
    encoding.ids.push_back(id);
    encoding.words.push_back(word);
    encoding.types.push_back(0);
    if (options.offsets) encoding.offsets.push_back(range);
  };
  if (options.add_special_tokens) add(vocabulary_.begin, -1, {});
  if (text.empty()) return encoding;
  std::string with_blank = " ";
  with_blank += text;
  std::vector<Piece> pieces;
  parts_->model->encode(with_blank, pieces);
  std::int32_t word = 0;
  for (const Piece& piece : pieces) {
    const std::uint32_t begin = piece.bytes.begin;
    if (begin > 1 && with_blank[begin] == ' ' && with_blank[begin - 1] != ' ') {
      ++word;
    }
    add(piece.id, word,
        {begin == 0 ? 0 : std::int64_t{begin} - 1,
         std::int64_t{piece.bytes.end} - 1});
  }
  return encoding;
}

std::string BytePairTokenizer::piece(std::int32_t id) const {
  require(id >= 0 && id < size(), "Tokenizer::piece",
          "pieces have numbers from 0 to ", size() - 1, "; got ", id);
  return vocabulary_.pieces[static_cast<std::size_t>(id)];
}

std::int32_t BytePairTokenizer::id_of(std::string_view piece) const {
  const std::int32_t id = parts_->vocabulary.find(piece);
  return id == kNone ? vocabulary_.unknown : id;
}

void BytePairTokenizer::save(const std::filesystem::path& folder) const {
  const BytePairVocabulary& v = vocabulary_;
  require(v.unknown == 0 && v.begin == 1 && v.end == 2, "Tokenizer::save",
          "a tokenizer that came inside a model's file is saved with it");
  io::AtomicFile file(folder / "tokenizer.bin", "Tokenizer::save");
  const auto write = [&](auto value) {
    file.write({reinterpret_cast<const char*>(&value), sizeof(value)});
  };
  std::int32_t longest = 1;
  for (const std::string& piece : v.pieces) {
    longest = std::max(longest, static_cast<std::int32_t>(piece.size()));
  }
  write(longest);
  for (std::size_t i = 0; i < v.pieces.size(); ++i) {
    write(v.scores[i]);
    write(static_cast<std::int32_t>(v.pieces[i].size()));
    file.write(v.pieces[i]);
  }
  file.commit();
}

std::string BytePairTokenizer::decode(std::int32_t before,
                                      std::int32_t token) const {
  require(token >= 0 && token < size(), "BytePairTokenizer::decode",
          "tokens are 0 to ", size() - 1, "; got ", token);
  const std::string& piece =
      vocabulary_.pieces[static_cast<std::size_t>(token)];
  switch (vocabulary_.kinds[static_cast<std::size_t>(token)]) {
    case Kind::kByte:
      return std::string(1, static_cast<char>(*byte_of_piece(piece)));
    case Kind::kControl:
      return token == vocabulary_.begin || token == vocabulary_.end
                 ? std::string()
                 : piece;
    case Kind::kNormal:
      break;
  }
  const bool first = before == vocabulary_.begin && piece.starts_with(' ');
  return first ? piece.substr(1) : piece;
}

std::string BytePairTokenizer::decode(std::span<const std::int32_t> tokens,
                                      SpecialTokens special) const {
  std::string text;
  std::int32_t before = vocabulary_.begin;
  for (const std::int32_t token : tokens) {
    const bool kept = special == SpecialTokens::kKeep &&
                      (token == vocabulary_.begin || token == vocabulary_.end);
    text += kept ? piece(token) : decode(before, token);
    before = token;
  }
  return text;
}

}  // namespace regard::text
