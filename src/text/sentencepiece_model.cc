// SPDX-License-Identifier: Apache-2.0
// SentencePiece's models are used without its library: a table of pieces, and
// the settings of how it normalizes.
#include "text/sentencepiece_model.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "io/quote.h"
#include "regard/core/error.h"
#include "text/tokenizers.h"

namespace regard::text {
namespace {

using Type = SentencePieceModel::Type;

// Each piece is looked at from each of its places on.
constexpr std::size_t kLongestPiece = 512;

// A message of Protocol Buffers, field by field.
class Message {
 public:
  Message(std::string_view bytes, const char* what, const std::string& where)
      : bytes_(bytes), what_(what), where_(where) {}

  // The next field, or false at the end.
  bool next() {
    if (at_ == bytes_.size()) return false;
    const std::uint64_t tag = varint();
    field_ = tag >> 3;
    switch (tag & 7) {
      case 0:
        number_ = varint();
        text_ = {};
        break;
      case 1:
        text_ = take(8);
        break;
      case 2:
        text_ = take(varint());
        break;
      case 5:
        text_ = take(4);
        break;
      default:
        fail("a field of a type that there is not");
    }
    wire_ = tag & 7;
    return true;
  }

  std::uint64_t field() const { return field_; }
  std::int64_t integer() const {
    if (wire_ != 0) fail("a number that is none");
    return static_cast<std::int64_t>(number_);
  }
  bool flag() const { return integer() != 0; }
  float real() const {
    if (wire_ != 5) fail("a real number that is none");
    float value = 0;
    std::memcpy(&value, text_.data(), sizeof(value));
    return value;
  }
  std::string_view text() const {
    if (wire_ != 2) fail("a text that is none");
    return text_;
  }

  [[noreturn]] void fail(const char* why) const {
    throw_parse_error(where_.c_str(),
                      "this is no model of SentencePiece: ", what_, " has ",
                      why, " at byte ", at_);
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) fail("an end within a number");
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail("a number that is too long");
  }
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) fail("an end within a field");
    const auto part = bytes_.substr(at_, static_cast<std::size_t>(count));
    at_ += part.size();
    return part;
  }

  std::string_view bytes_;
  const char* what_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::uint64_t field_ = 0, wire_ = 0, number_ = 0;
  std::string_view text_;
};

void read_piece(Message message, SentencePieceModel& model) {
  model.pieces.emplace_back();
  model.scores.push_back(0);
  model.types.push_back(Type::kNormal);
  while (message.next()) {
    if (message.field() == 1) {
      model.pieces.back() = std::string(message.text());
    } else if (message.field() == 2) {
      model.scores.back() = message.real();
    } else if (message.field() == 3) {
      const std::int64_t type = message.integer();
      if (type < 1 || type > 6) message.fail("a type that there is not");
      model.types.back() = static_cast<Type>(type);
    }
  }
}

void read_trainer(Message message, SentencePieceModel& model) {
  const auto id = [&] { return static_cast<std::int32_t>(message.integer()); };
  model.special = {.unknown = 0, .begin = 1, .end = 2};
  while (message.next()) {
    switch (message.field()) {
      case 3:
        if (message.integer() != 1 && message.integer() != 2) {
          message.fail("a kind of model that is neither unigram nor BPE");
        }
        model.kind = message.integer() == 1 ? SentencePieceModel::Kind::kUnigram
                                            : SentencePieceModel::Kind::kBpe;
        break;
      case 24:
        model.normalizer.whitespace_as_suffix = message.flag();
        break;
      case 35:
        model.byte_fallback = message.flag();
        break;
      case 40:
        model.special.unknown = id();
        break;
      case 41:
        model.special.begin = id();
        break;
      case 42:
        model.special.end = id();
        break;
      case 43:
        model.special.padding = id();
        break;
      case 44:
        model.unknown_text = std::string(message.text());
        break;
      default:
        break;
    }
  }
}

void read_normalizer(Message message, SentencePieceModel& model) {
  while (message.next()) {
    switch (message.field()) {
      case 2:
        model.normalizer.charsmap = std::string(message.text());
        break;
      case 3:
        model.normalizer.add_dummy_prefix = message.flag();
        break;
      case 4:
        model.normalizer.remove_extra_whitespaces = message.flag();
        break;
      case 5:
        model.normalizer.escape_whitespaces = message.flag();
        break;
      default:
        break;
    }
  }
}

}  // namespace

PipelineParts sentencepiece_parts(SentencePieceModel model,
                                  const std::string& where) {
  const char* const name = where.c_str();
  const auto size = static_cast<std::int32_t>(model.pieces.size());
  UnigramOptions options;
  options.byte_fallback = model.byte_fallback;
  options.float_sums = true;
  options.hidden.resize(model.pieces.size());
  options.user_defined.resize(model.pieces.size());
  PipelineParts parts;
  parts.control.resize(model.pieces.size());
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const Type type = model.types[i];
    const std::string& piece = model.pieces[i];
    if (!std::isfinite(model.scores[i])) {
      throw_parse_error(name, "the score of piece ", i, " is no number");
    }
    if (piece.empty() || piece.size() > kLongestPiece) {
      throw_parse_error(name, "a piece must have 1 to ", kLongestPiece,
                        " bytes; piece ", i, " has ", piece.size());
    }
    if (type == Type::kByte && !byte_of_piece(piece)) {
      throw_parse_error(name, "piece ", i,
                        " is to be a byte, but is not written as one: ",
                        io::in_quotes(piece));
    }
    if (type == Type::kUnused && model.kind == SentencePieceModel::Kind::kBpe) {
      throw_parse_error(name, "BPE with unused pieces is not known; piece ", i,
                        " is unused");
    }
    if (type == Type::kUserDefined) {
      options.user_defined[i] = true;
      model.normalizer.user_defined.push_back(piece);
    } else {
      options.hidden[i] = type != Type::kNormal;
    }
    parts.control[i] = type == Type::kControl;
    if (type == Type::kUnk) {
      model.special.unknown = static_cast<std::int32_t>(i);
    }
  }
  SpecialIds& special = model.special;
  if (special.unknown < 0 || special.unknown >= size) {
    throw_parse_error(name, "one piece must be the unknown one");
  }
  for (std::int32_t* id : {&special.begin, &special.end, &special.padding}) {
    if (*id >= size) *id = kNone;
  }
  options.unknown = special.unknown;
  parts.special = special;
  parts.unknown_text = model.unknown_text;
  try {
    parts.normalizer = make_sentencepiece_normalizer(model.normalizer);
  } catch (const InvalidArgument& error) {
    throw_parse_error(name, error.what());
  }
  parts.vocabulary = std::make_unique<Vocabulary>(std::move(model.pieces));
  parts.model = model.kind == SentencePieceModel::Kind::kBpe
                    ? make_score_bpe(*parts.vocabulary, model.scores, options)
                    : make_unigram(*parts.vocabulary, model.scores, options);
  parts.decoder = make_sentencepiece_decoder(
      {.byte_fallback = model.byte_fallback,
       .strip_first = model.normalizer.add_dummy_prefix ||
                      model.normalizer.remove_extra_whitespaces,
       .strip_all = model.normalizer.remove_extra_whitespaces});
  return parts;
}

std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes,
                                               const std::string& where,
                                               Save save) {
  SentencePieceModel model;
  Message message(bytes, "the file", where);
  while (message.next()) {
    if (message.field() == 1) {
      read_piece({message.text(), "a piece", where}, model);
    } else if (message.field() == 2) {
      read_trainer({message.text(), "the trainer's part", where}, model);
    } else if (message.field() == 3) {
      read_normalizer({message.text(), "the normalizer's part", where}, model);
    }
  }
  if (model.pieces.empty()) message.fail("no pieces");
  PipelineParts parts = sentencepiece_parts(std::move(model), where);
  parts.save = std::move(save);
  return make_pipeline(std::move(parts));
}

std::unique_ptr<Tokenizer> own_sentencepiece(std::string bytes,
                                             const std::string& where) {
  auto shared = std::make_shared<const std::string>(std::move(bytes));
  return parse_sentencepiece(*shared, where,
                             [shared](const std::filesystem::path& folder) {
                               save_only(folder, kSentencePieceFile, *shared);
                             });
}

}  // namespace regard::text
