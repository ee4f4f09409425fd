// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace regard::tasks {

// How text is cut into words before BLEU counts them; sacreBLEU's names.
enum class ScoreTokens {
  k13a,   // the standard of WMT: punctuation apart
  kNone,  // at blanks: the text is tokenised already
  kZh,    // each Chinese character a word, the rest as 13a
};

struct ScoreOptions {
  ScoreTokens tokens = ScoreTokens::k13a;
  bool lowercase = false;
};

struct BleuScore {
  double score = 0;                    // 0 to 100
  std::array<double, 4> precisions{};  // in percent, smoothed
  double brevity_penalty = 1;
  std::int64_t hypothesis_length = 0;
  std::int64_t reference_length = 0;
};

// BLEU of a corpus, one reference a sentence: the number that sacreBLEU gives
// (exponential smoothing). Throws InvalidArgument unless there are as many
// references as hypotheses, at least one, in UTF-8.
BleuScore bleu(std::span<const std::string> hypotheses,
               std::span<const std::string> references,
               const ScoreOptions& options = {});

// chrF2 of a corpus, 0 to 100: characters to order 6, no words, beta 2, without
// blanks. The number that sacreBLEU gives. Only lowercase counts of the
// options.
double chrf(std::span<const std::string> hypotheses,
            std::span<const std::string> references,
            const ScoreOptions& options = {});

// The words that BLEU counts, one blank between them.
std::string score_words(std::string_view line, const ScoreOptions& options);

}  // namespace regard::tasks
