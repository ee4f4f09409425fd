// SPDX-License-Identifier: Apache-2.0
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "io/atomic_file.h"
#include "io/read_file.h"
#include "regard/core/error.h"
#include "regard/text/lines.h"
#include "regard/text/utf8.h"
#include "text/tokenizers.h"

namespace regard::text {
namespace {

constexpr double kLeastCoverage = 0.98;  // SentencePiece takes no less

class Pieces : public Tokenizer {
 public:
  // Throws ParseError for bytes that are no model of ours.
  Pieces(std::string model, const std::string& name)
      : model_(std::move(model)) {
    const auto status = processor_.LoadFromSerializedProto(model_);
    if (!status.ok() || model_.empty()) {
      throw_parse_error("load_tokenizer", "'", name,
                        "' is no model of SentencePiece: ", status.message());
    }
    if (processor_.unk_id() != kUnknown || processor_.bos_id() != kBegin ||
        processor_.eos_id() != kEnd) {
      throw_parse_error("load_tokenizer", "the first pieces of '", name,
                        "' must be <unk>, <s>, </s>; they have the numbers ",
                        processor_.unk_id(), ", ", processor_.bos_id(), ", ",
                        processor_.eos_id());
    }
  }

  std::int64_t size() const override { return processor_.GetPieceSize(); }

  std::vector<std::int32_t> encode(std::string_view line) const override {
    const std::size_t bad = find_invalid_utf8(line);
    require(bad == std::string_view::npos, "Tokenizer::encode",
            "the line must be UTF-8; it is not at byte ", bad + 1);
    std::vector<int> ids;
    const auto status = processor_.Encode({line.data(), line.size()}, &ids);
    require(status.ok(), "Tokenizer::encode", status.message());
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    for (const std::int32_t id : ids) check(id);
    std::string text;
    const auto status =
        processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    require(status.ok(), "Tokenizer::decode", status.message());
    return text;
  }

  std::string piece(std::int32_t id) const override {
    check(id);
    return processor_.IdToPiece(id);
  }

  std::int32_t id_of(std::string_view piece) const override {
    return processor_.PieceToId({piece.data(), piece.size()});
  }

  void save(const std::filesystem::path& folder) const override {
    io::AtomicFile file(folder / kSentencePieceFile, "Tokenizer::save");
    file.write(model_);
    file.commit();
    std::filesystem::remove(folder / kWordFile);
  }

 private:
  void check(std::int32_t id) const {
    require(id >= 0 && id < size(), "Tokenizer::piece",
            "pieces have numbers from 0 to ", size() - 1, "; got ", id);
  }

  std::string model_;  // as it stands in the file
  sentencepiece::SentencePieceProcessor processor_;
};

class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(std::span<const std::string> lines) : rest_(lines) {}
  bool done() const override { return rest_.empty(); }
  void Next() override { rest_ = rest_.subspan(1); }
  const std::string& value() const override { return rest_.front(); }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::span<const std::string> rest_;
};

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) {
    text += (text.empty() ? "" : ",") + part;
  }
  return text;
}

}  // namespace

bool sentencepiece_available() { return true; }

std::unique_ptr<Tokenizer> load_sentencepiece(
    const std::filesystem::path& path) {
  return std::make_unique<Pieces>(io::read_file(path, "load_tokenizer"),
                                  path.string());
}

std::unique_ptr<Tokenizer> train_sentencepiece(
    std::span<const std::string> lines, const SentencePieceOptions& options) {
  require(options.size > 3, "train_sentencepiece",
          "a vocabulary must have more than 3 pieces; got ", options.size);
  require(options.coverage >= kLeastCoverage && options.coverage <= 1,
          "train_sentencepiece", "the coverage must be in [", kLeastCoverage,
          ", 1]; got ", options.coverage);
  require(std::any_of(lines.begin(), lines.end(),
                      [](const std::string& line) { return !is_blank(line); }),
          "train_sentencepiece", "there must be a line that is not blank; ",
          lines.size(), " came");
  std::size_t longest = 0;
  for (const std::string& line : lines) {
    longest = std::max(longest, line.size());
  }
  std::unordered_map<std::string, std::string> settings = {
      {"model_type", options.model == PieceModel::kBpe ? "bpe" : "unigram"},
      {"vocab_size", std::to_string(options.size)},
      {"character_coverage", std::to_string(options.coverage)},
      {"normalization_rule_name", "identity"},
      // It would leave out longer lines without a word, and wants 10 at least.
      {"max_sentence_length",
       std::to_string(std::max<std::size_t>(longest + 1, 10))},
      // Fewer pieces where the text does not hold so many.
      {"hard_vocab_limit", "false"},
      // The shares of the threads are part of the result.
      {"num_threads", "4"},
      {"minloglevel", "2"},
  };
  if (!options.tags.empty()) {
    settings["control_symbols"] = joined(options.tags);
  }
  Lines iterator(lines);
  std::string model;
  const auto status =
      sentencepiece::SentencePieceTrainer::Train(settings, &iterator, &model);
  require(status.ok(), "train_sentencepiece",
          "SentencePiece refuses: ", status.message());
  return std::make_unique<Pieces>(std::move(model), "the new model");
}

}  // namespace regard::text
