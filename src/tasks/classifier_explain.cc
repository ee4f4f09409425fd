// SPDX-License-Identifier: Apache-2.0
// Which words weighed.
#include <algorithm>
#include <numeric>

#include "tasks/classifier_parts.h"

namespace regard::tasks {
namespace {

// Which unit a token belongs to: its word, or itself where all are one word.
std::vector<std::int32_t> units_of(const text::Encoding& encoding) {
  std::vector<std::int32_t> units = encoding.words;
  const auto most = std::max_element(units.begin(), units.end());
  if (*most <= 0) {
    std::iota(units.begin(), units.end(), -1);  // kBegin is none
  }
  return units;
}

}  // namespace

Explanation Classifier::explain(const std::string& text,
                                Threads threads) const {
  const text::Encoding encoding = encode_text(
      text, *parts_->tokenizer, parts_->config.encoder.max_length, true);
  const std::vector<std::int32_t> units = units_of(encoding);
  // The text, and the text without each of its words.
  std::vector<std::vector<std::int32_t>> variants = {encoding.ids};
  Explanation out;
  for (std::size_t t = 1; t < units.size(); ++t) {
    const text::ByteRange bytes = encoding.offsets[t];
    if (t == 1 || units[t] != units[t - 1]) {
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
  std::size_t word = 0;
  for (std::size_t t = 1; t < units.size(); ++t) {
    if (t > 1 && units[t] != units[t - 1]) ++word;
    out.words[word].rollout += static_cast<float>(shares[t]);
  }
  return out;
}

}  // namespace regard::tasks
