// SPDX-License-Identifier: Apache-2.0
#include "regard/text/byte_pair.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <queue>
#include <utility>

#include "io/quote.h"
#include "io/read_file.h"
#include "regard/core/error.h"

namespace regard::text {
namespace {

using Kind = BytePairVocabulary::Kind;

// The byte of "<0x41>", if the piece is written so.
std::optional<std::uint8_t> byte_of(std::string_view piece) {
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
  return static_cast<std::uint8_t>(value);
}

// The bytes of the character that starts a text, 1 where it is not UTF-8.
std::size_t character_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first < 0x80             ? 1
                             : (first & 0xe0) == 0xc0 ? 2
                             : (first & 0xf0) == 0xe0 ? 3
                             : (first & 0xf8) == 0xf0 ? 4
                                                      : 1;
  if (length > text.size()) return 1;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 1;
  }
  return length;
}

// A text on its way: pieces in a list, and the neighbours that could be joined.
class Joining {
 public:
  Joining(const std::unordered_map<std::string_view, std::int32_t>& ids,
          const BytePairVocabulary& vocabulary)
      : ids_(ids), vocabulary_(vocabulary) {}

  void append(std::int32_t token) {
    const auto place = static_cast<std::int64_t>(nodes_.size());
    nodes_.push_back({token, place - 1, -1});
    if (place > 0) nodes_[static_cast<std::size_t>(place - 1)].next = place;
  }

  std::vector<std::int32_t> joined() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      consider(static_cast<std::int64_t>(i));
    }
    while (!pairs_.empty()) {
      const Pair pair = pairs_.top();
      pairs_.pop();
      Node& left = at(pair.left);
      // One of the two may have been joined with another since.
      if (left.token != pair.left_token || left.next < 0 ||
          at(left.next).token != pair.right_token) {
        continue;
      }
      const std::int64_t gone = left.next;
      left.token = pair.token;
      left.next = at(gone).next;
      at(gone).token = -1;
      if (left.next >= 0) at(left.next).before = pair.left;
      consider(pair.left);
      if (left.before >= 0) consider(left.before);
    }
    std::vector<std::int32_t> tokens;
    for (const Node& node : nodes_) {
      if (node.token >= 0) tokens.push_back(node.token);
    }
    return tokens;
  }

 private:
  struct Node {
    std::int32_t token;  // -1: joined with the one before
    std::int64_t before, next;
  };
  struct Pair {
    float score;
    std::int64_t left;
    std::int32_t left_token, right_token, token;
    // The best is on top: the highest score, then the leftmost.
    bool operator<(const Pair& other) const {
      return score != other.score ? score < other.score : left > other.left;
    }
  };

  Node& at(std::int64_t i) { return nodes_[static_cast<std::size_t>(i)]; }

  void consider(std::int64_t i) {
    const Node& left = at(i);
    if (left.next < 0) return;
    const Node& right = at(left.next);
    const auto piece = [&](std::int32_t token) -> const std::string& {
      return vocabulary_.pieces[static_cast<std::size_t>(token)];
    };
    // Bytes are never joined, though "<0" and "x41>" might look like pieces.
    if (!is_normal(left.token) || !is_normal(right.token)) return;
    both_.assign(piece(left.token)).append(piece(right.token));
    const auto found = ids_.find(both_);
    if (found == ids_.end()) return;
    const auto id = static_cast<std::size_t>(found->second);
    pairs_.push(
        {vocabulary_.scores[id], i, left.token, right.token, found->second});
  }

  bool is_normal(std::int32_t token) const {
    return vocabulary_.kinds[static_cast<std::size_t>(token)] == Kind::kNormal;
  }

  const std::unordered_map<std::string_view, std::int32_t>& ids_;
  const BytePairVocabulary& vocabulary_;
  std::vector<Node> nodes_;
  std::priority_queue<Pair> pairs_;
  std::string both_;
};

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
    if (!std::isfinite(score)) {
      throw_parse_error(name, "the score of piece ", id, " is no number");
    }
    vocabulary.pieces.emplace_back(
        bytes.substr(at, static_cast<std::size_t>(length)));
    at += static_cast<std::size_t>(length);
    vocabulary.scores.push_back(score);
    vocabulary.kinds.push_back(id < 3 ? Kind::kControl
                               : byte_of(vocabulary.pieces.back())
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
  bytes_.fill(v.unknown);
  for (std::size_t i = 0; i < n; ++i) {
    const auto id = static_cast<std::int32_t>(i);
    require(std::isfinite(v.scores[i]), kWhere, "the score of piece ", i,
            " is no number");
    if (v.kinds[i] == Kind::kByte) {
      const auto byte = byte_of(v.pieces[i]);
      require(byte.has_value(), kWhere, "piece ", i,
              " is to be a byte, but is not written as one");
      bytes_[*byte] = id;
    } else if (v.kinds[i] == Kind::kNormal && !v.pieces[i].empty()) {
      ids_.try_emplace(v.pieces[i], id);  // of equals, the first
    }
  }
}

BytePairTokenizer BytePairTokenizer::load_llama2c(
    const std::filesystem::path& path) {
  constexpr const char* kWhere = "BytePairTokenizer::load_llama2c";
  return read_llama2c(io::read_file(path, kWhere),
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
    if (type == kByteType && !byte_of((*pieces)[i])) {
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

std::vector<std::int32_t> BytePairTokenizer::encode(
    std::string_view text) const {
  if (text.empty()) return {};
  Joining joining(ids_, vocabulary_);
  std::string with_blank = " ";
  with_blank += text;
  for (std::string_view left = with_blank; !left.empty();) {
    const std::string_view character = left.substr(0, character_length(left));
    left.remove_prefix(character.size());
    if (const auto found = ids_.find(character); found != ids_.end()) {
      joining.append(found->second);
      continue;
    }
    for (const char byte : character) {
      joining.append(bytes_[static_cast<unsigned char>(byte)]);
    }
  }
  return joining.joined();
}

std::string BytePairTokenizer::decode(std::int32_t before,
                                      std::int32_t token) const {
  require(token >= 0 && token < size(), "BytePairTokenizer::decode",
          "tokens are 0 to ", size() - 1, "; got ", token);
  const std::string& piece =
      vocabulary_.pieces[static_cast<std::size_t>(token)];
  switch (vocabulary_.kinds[static_cast<std::size_t>(token)]) {
    case Kind::kByte:
      return std::string(1, static_cast<char>(*byte_of(piece)));
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

std::string BytePairTokenizer::decode(
    std::span<const std::int32_t> tokens) const {
  std::string text;
  std::int32_t before = vocabulary_.begin;
  for (const std::int32_t token : tokens) {
    text += decode(before, token);
    before = token;
  }
  return text;
}

}  // namespace regard::text
