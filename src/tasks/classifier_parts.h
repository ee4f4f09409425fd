// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/tasks/classifier.h"

namespace regard::tasks {

struct Classifier::Parts {
  ClassifierConfig config;
  std::unique_ptr<text::Tokenizer> tokenizer;
  nn::PackedParameters weights;
  nn::Encoder encoder;

  // Row i: the probability of each label for text i.
  std::vector<std::vector<float>> probabilities(
      std::span<const std::vector<std::int32_t>> texts, Threads threads) const;
};

// softmax(scores), summed in double.
std::vector<float> softmax_of(std::span<const float> scores);

// The number of each label among those that are known. Throws InvalidArgument,
// in the name of `where`, for one that is none of them, with its line.
std::vector<std::int32_t> label_numbers(const LabelledTexts& texts,
                                        std::span<const std::string> known,
                                        const char* where);

// At least two labels, none twice, or InvalidArgument.
void check_labels(std::span<const std::string> labels, const char* where);

// All labels, the likeliest first, the first of equals first.
std::vector<LabelProbability> ranked(std::span<const float> probabilities);

// A text as the encoder reads it, with the bytes of each token, where asked
// for, and the word that it belongs to; -1 for special tokens.
struct EncodedText {
  text::Encoding encoding;
  bool cut = false;  // at max_length
};
EncodedText encode_text(std::string_view text, const text::Tokenizer& tokenizer,
                        const ClassifierConfig& config, bool offsets = false);

}  // namespace regard::tasks
