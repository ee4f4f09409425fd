// SPDX-License-Identifier: Apache-2.0
// Which tokenizer a folder or a file holds, and what all of them share.
#include <algorithm>
#include <utility>

#include "io/quote.h"
#include "io/read_file.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/text/byte_pair.h"
#include "regard/text/tokenizer.h"
#include "text/side_files.h"
#include "text/tables.h"
#include "text/tokenizers.h"

namespace regard::text {
namespace {

constexpr const char* kWhere = "load_tokenizer";
namespace fs = std::filesystem;

std::string where_of(const fs::path& path) {
  return std::string(kWhere) + ": '" + path.string() + "'";
}

bool has(const fs::path& folder, const char* name) {
  return io::is_there(folder / name);
}

SideFiles read_side_files(const fs::path& folder) {
  SideFiles side;
  const auto read = [&](const char* name, Json& json) {
    if (!has(folder, name)) return;
    side.where = where_of(folder / name);
    json = parse_json(io::read_regular(folder / name, kWhere), side.where);
    if (!json.is_object()) Field(json, side.where).expect("an object");
  };
  read("special_tokens_map.json", side.special);
  read("tokenizer_config.json", side.config);
  return side;
}

// Copies the files that a tokenizer was read from.
Save copies(const fs::path& folder, std::vector<std::string> names) {
  return [folder, names = std::move(names)](const fs::path& to) {
    std::error_code unknown;
    if (fs::equivalent(folder, to, unknown)) return;  // they are there
    for (const std::string& name : names) {
      if (!fs::exists(folder / name)) continue;
      std::error_code error;
      fs::copy_file(folder / name, to / name,
                    fs::copy_options::overwrite_existing, error);
      if (error) {
        throw_io_error("Tokenizer::save", "cannot copy '",
                       (folder / name).string(), "' to '", to.string(),
                       "': ", error.message());
      }
    }
  };
}

Save copies_with_side(const fs::path& folder, std::vector<std::string> names) {
  names.push_back("tokenizer_config.json");
  names.push_back("special_tokens_map.json");
  return copies(folder, std::move(names));
}

std::vector<std::string> pieces_of(const fs::path& path) {
  const std::string where = where_of(path);
  const auto json = parse_json(io::read_regular(path, kWhere), where);
  const Field file(json, where);
  std::vector<std::string> pieces;
  if (json.is_array()) {
    file.for_each([&](const Field& piece) { pieces.push_back(piece.text()); });
    return pieces;
  }
  if (!json.is_object()) file.expect("an object or an array");
  for (const auto& [piece, id] : json.items()) {
    const auto place = Field(id, where, piece).id();
    if (place >= std::ssize(json)) {
      file.fail("must number its pieces from 0 on; ", io::in_quotes(piece),
                " has ", place);
    }
    pieces.resize(json.size());
    pieces[static_cast<std::size_t>(place)] = piece;
  }
  return pieces;
}

// Marian's: SentencePiece cuts, a list numbers, and a text ends with </s>.
std::unique_ptr<Tokenizer> load_marian(const fs::path& folder) {
  const fs::path model = folder / "source.spm";
  auto tokenizer = renumbered(
      parse_sentencepiece(
          io::read_regular(model, kWhere), where_of(model),
          copies_with_side(folder, {"source.spm", "target.spm", "vocab.json"})),
      pieces_of(folder / "vocab.json"), "<unk>");
  return tokenizer;
}

std::unique_ptr<Tokenizer> load_file(const fs::path& path) {
  const fs::path folder = path.parent_path();
  const std::string name = path.filename().string();
  const std::string where = where_of(path);
  if (io::read_start(path, 4, kWhere) == "GGUF") {
    return load_tokenizer(GgufFile::open(path));
  }
  const std::string extension = path.extension().string();
  if (name == kWordFile) return load_words(path);
  if (extension == ".txt") {
    return parse_vocab_txt(io::read_regular(path, kWhere), where,
                           read_side_files(folder),
                           copies_with_side(folder, {name}));
  }
  if (extension == ".bin") {
    return std::make_unique<BytePairTokenizer>(
        BytePairTokenizer::load_llama2c(path));
  }
  if (extension == ".model" || extension == ".spm") {
    std::string bytes = io::read_regular(path, kWhere);
    if (name == kSentencePieceFile) {
      return own_sentencepiece(std::move(bytes), where);
    }
    return parse_sentencepiece(bytes, where, copies(folder, {name}));
  }
  if (name == "vocab.json" && has(folder, "merges.txt")) {
    return parse_vocab_and_merges(
        io::read_regular(path, kWhere),
        io::read_regular(folder / "merges.txt", kWhere), where,
        read_side_files(folder),
        copies_with_side(folder, {"vocab.json", "merges.txt"}));
  }
  if (extension == ".json") {
    return parse_tokenizer_json(io::read_regular(path, kWhere), where,
                                read_side_files(folder),
                                copies_with_side(folder, {name}));
  }
  throw_parse_error(kWhere, "'", path.string(),
                    "' is none of the files that hold a tokenizer: "
                    "tokenizer.json, vocabulary.txt, vocab.txt, vocab.json, "
                    "*.model, *.spm, *.gguf or tokenizer.bin");
}

class Renumbered : public Tokenizer {
 public:
  Renumbered(std::unique_ptr<Tokenizer> tokenizer,
             std::vector<std::string> pieces, std::string_view unknown)
      : inner_(std::move(tokenizer)),
        pieces_(std::move(pieces)),
        ids_(pieces_.size()) {
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      ids_.insert(pieces_[i], static_cast<std::int32_t>(i));
    }
    special_.unknown = ids_.find(unknown);
    require(special_.unknown != kNone, "renumbered",
            "the list must have the unknown piece ", io::in_quotes(unknown));
    special_.begin = ids_.find("<s>");
    special_.end = ids_.find("</s>");
    special_.padding = ids_.find("<pad>");
    for (std::int32_t id = 0; id < inner_->size(); ++id) {
      const std::int32_t ours = ids_.find(inner_->piece(id));
      to_ours_.push_back(ours == kNone ? special_.unknown : ours);
    }
  }

  std::int64_t size() const override { return std::ssize(pieces_); }
  SpecialIds special() const override { return special_; }

  Encoding encode(std::string_view text,
                  const EncodeOptions& options) const override {
    EncodeOptions plain = options;
    plain.add_special_tokens = false;
    const bool ends = options.add_special_tokens && special_.end != kNone;
    if (ends && options.max_length > 0) {
      require(options.max_length > 1, "Tokenizer::encode",
              "max_length must leave room beside 1 special token; it is ",
              options.max_length);
      --plain.max_length;
    }
    Encoding encoding = inner_->encode(text, plain);
    for (std::int32_t& id : encoding.ids) {
      id = to_ours_[static_cast<std::size_t>(id)];
    }
    if (ends) {
      encoding.ids.push_back(special_.end);
      encoding.words.push_back(-1);
      encoding.types.push_back(0);
      if (options.offsets) encoding.offsets.push_back({0, 0});
    }
    return encoding;
  }

  std::string decode(std::span<const std::int32_t> ids,
                     SpecialTokens special) const override {
    constexpr std::string_view kBlank = "\xE2\x96\x81";
    std::string text;
    for (const std::int32_t id : ids) {
      const bool skips = special == SpecialTokens::kSkip &&
                         (id == special_.begin || id == special_.end ||
                          id == special_.padding || id == special_.unknown);
      std::string piece = this->piece(id);
      if (skips) continue;
      for (std::size_t at = piece.find(kBlank); at != std::string::npos;
           at = piece.find(kBlank, at + 1)) {
        piece.replace(at, kBlank.size(), 1, ' ');
      }
      text += piece;
    }
    const std::size_t first =
        std::min(text.find_first_not_of(' '), text.size());
    return text.substr(first);
  }

  std::string piece(std::int32_t id) const override {
    require(id >= 0 && id < size(), "Tokenizer::piece",
            "pieces have numbers from 0 to ", size() - 1, "; got ", id);
    return pieces_[static_cast<std::size_t>(id)];
  }
  std::int32_t id_of(std::string_view piece) const override {
    const std::int32_t id = ids_.find(piece);
    return id == kNone ? special_.unknown : id;
  }
  void save(const fs::path& folder) const override { inner_->save(folder); }

 private:
  std::unique_ptr<Tokenizer> inner_;
  std::vector<std::string> pieces_;
  PieceTable ids_;
  SpecialIds special_;
  std::vector<std::int32_t> to_ours_;
};

}  // namespace

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  return encode(text, {.add_special_tokens = false}).ids;
}

Encoding Tokenizer::encode_pair(std::string_view first, std::string_view second,
                                const EncodeOptions& options) const {
  require(options.max_length == 0, "Tokenizer::encode_pair",
          "this tokenizer does not cut pairs to a length");
  Encoding both = encode(first, options);
  const Encoding other = encode(second, options);
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(both.ids, other.ids);
  append(both.words, other.words);
  append(both.types, other.types);
  append(both.offsets, other.offsets);
  return both;
}

std::string TextStream::next(std::int32_t id) {
  const std::span<const std::int32_t> all(ids_);
  const std::string before = tokenizer_->decode(all.first(read_));
  ids_.push_back(id);
  const std::string after = tokenizer_->decode(ids_);
  // A character that is not complete ends as U+FFFD, and may change.
  if (after.size() <= before.size() || after.ends_with("\xEF\xBF\xBD")) {
    return "";
  }
  std::string text = after.substr(before.size());
  // What was given out last stays, as a blank may depend on it.
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(read_));
  read_ = ids_.size();
  return text;
}

std::string TextStream::rest() {
  const std::span<const std::int32_t> all(ids_);
  const std::string before = tokenizer_->decode(all.first(read_));
  const std::string after = tokenizer_->decode(all);
  read_ = ids_.size();
  return after.size() <= before.size() ? "" : after.substr(before.size());
}

std::unique_ptr<Tokenizer> renumbered(std::unique_ptr<Tokenizer> tokenizer,
                                      std::vector<std::string> pieces,
                                      std::string_view unknown) {
  return std::make_unique<Renumbered>(std::move(tokenizer), std::move(pieces),
                                      unknown);
}

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path) {
  if (!fs::is_directory(path)) return load_file(path);
  if (has(path, "tokenizer.json")) return load_file(path / "tokenizer.json");
  if (has(path, kWordFile)) return load_file(path / kWordFile);
  if (has(path, "source.spm") && has(path, "vocab.json")) {
    return load_marian(path);
  }
  for (const char* name :
       {kSentencePieceFile, "spiece.model", "sentencepiece.bpe.model",
        "sentencepiece.model", "vocab.txt"}) {
    if (has(path, name)) return load_file(path / name);
  }
  if (has(path, "vocab.json") && has(path, "merges.txt")) {
    return load_file(path / "vocab.json");
  }
  throw_io_error(kWhere, "'", path.string(),
                 "' has no tokenizer: no tokenizer.json, ", kWordFile, ", ",
                 kSentencePieceFile,
                 ", vocab.txt, or vocab.json with merges.txt or source.spm");
}

}  // namespace regard::text
