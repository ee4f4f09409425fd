// SPDX-License-Identifier: Apache-2.0
// Pieces are learnt by SentencePiece's own library.
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "regard/core/error.h"
#include "regard/text/lines.h"
#include "text/tokenizers.h"

namespace regard::text {
namespace {

constexpr double kLeastCoverage = 0.98;  // SentencePiece takes no less

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
  return own_sentencepiece(std::move(model), "train_sentencepiece");
}

}  // namespace regard::text
