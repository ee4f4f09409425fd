// SPDX-License-Identifier: Apache-2.0
// Which words weighed.
#include <algorithm>

#include "tasks/classifier_parts.h"

namespace regard::tasks {
namespace {

// Which unit a token belongs to: its word, or itself where all are one word;
// -1 for special tokens.
std::vector<std::int32_t> units_of(const text::Encoding& encoding) {
  std::vector<std::int32_t> units = encoding.words;
  if (*std::max_element(units.begin(), units.end()) > 0) return units;
  std::int32_t next = 0;
  for (std::int32_t& unit : units) {
    if (unit >= 0) unit = next++;
  }
  return units;
}

}  // namespace

Explanation Classifier::explain(const std::string& text,
                                Threads threads) const {
  const text::Encoding encoding =
      encode_text(text, *parts_->tokenizer, parts_->config, true).encoding;
  const std::vector<std::int32_t> units = units_of(encoding);
  // The text, and the text without each of its words.
  std::vector<std::vector<std::int32_t>> variants = {encoding.ids};
  Explanation out;
  for (std::size_t t = 0; t < units.size(); ++t) {
    if (units[t] < 0) continue;
    const text::ByteRange bytes = encoding.offsets[t];
    if (t == 0 || units[t] != units[t - 1]) {
      out.words.push_back({.word = "", .begin = bytes.begin});
      std::vector<std::int32_t> without;
      for (std::size_t i = 0; i < units.size(); ++i) {
        if (units[i] != units[t]) without.push_back(encoding.ids[i]);
      }
      variants.push_back(std::move(without));
    }
    WordWeight& word = out.words.back();
    const auto end = std::max(bytes.end, word.begin);
    word.word = text.substr(static_cast<std::size_t>(word.begin),
                            static_cast<std::size_t>(end - word.begin));
  }
  // Some tokenizers count the blank before a word to it.
  for (WordWeight& word : out.words) {
    const std::size_t blanks =
        std::min(word.word.find_first_not_of(" \t\r\n"), word.word.size());
    word.word.erase(0, blanks);
    word.begin += static_cast<std::int64_t>(blanks);
  }
  const auto probabilities = parts_->probabilities(variants, threads);
  out.labels = ranked(probabilities[0]);
  const auto label = static_cast<std::size_t>(out.labels.front().label);
  for (std::size_t w = 0; w < out.words.size(); ++w) {
    out.words[w].occlusion =
        probabilities[0][label] - probabilities[w + 1][label];
  }
  autograd::Tape tape(autograd::Record::kNo, threads);
  nn::Pass pass(tape, parts_->weights);
  const nn::PackedTokens one{encoding.ids, {0, std::ssize(encoding.ids)}};
  const std::vector<double> shares =
      parts_->encoder.attention(pass, parts_->encoder.embed(pass, one), one)
          .rollout();
  std::size_t words = 0;
  for (std::size_t t = 0; t < units.size(); ++t) {
    if (units[t] < 0) continue;
    if (t == 0 || units[t] != units[t - 1]) ++words;
    out.words[words - 1].rollout += static_cast<float>(shares[t]);
  }
  return out;
}

}  // namespace regard::tasks
