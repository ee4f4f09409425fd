// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace regard::tasks {

// How text is cut into words before they are counted; for BLEU, sacreBLEU's
// names.
enum class ScoreTokens {
  k13a,    // the standard of WMT: punctuation apart
  kNone,   // at blanks: the text is tokenised already
  kZh,     // each Chinese character a word, the rest as 13a
  kRouge,  // runs of a-z and 0-9, in small letters; nothing else counts
};

struct ScoreOptions {
  ScoreTokens tokens = ScoreTokens::k13a;
  bool lowercase = false;
};

struct BleuScore {
  double score = 0;  // 0 to 100: BLEU-4
  // BLEU-1 to BLEU-4: with n-grams up to each order.
  std::array<double, 4> up_to_order{};
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

// The same with several references for each hypothesis, at least one: an
// n-gram counts as often as the reference that has it most often; the length is
// that of the reference that is nearest, of two the shorter.
BleuScore bleu(std::span<const std::string> hypotheses,
               std::span<const std::vector<std::string>> references,
               const ScoreOptions& options = {});

// chrF2 of a corpus, 0 to 100: characters to order 6, no words, beta 2, without
// blanks. The number that sacreBLEU gives. Only lowercase counts of the
// options.
double chrf(std::span<const std::string> hypotheses,
            std::span<const std::string> references,
            const ScoreOptions& options = {});

// In percent: the means over the pairs.
struct RougeScore {
  struct Part {
    double precision = 0;
    double recall = 0;
    double f1 = 0;
  };
  Part rouge1;  // words
  Part rouge2;  // pairs of words
  Part rougeL;  // the longest common subsequence of words
};

// ROUGE of summaries, one reference each: for ScoreTokens::kRouge the means of
// what the package rouge-score gives without stemming. A text without words has
// zeros. Throws as bleu().
RougeScore rouge(std::span<const std::string> hypotheses,
                 std::span<const std::string> references,
                 const ScoreOptions& options = {.tokens = ScoreTokens::kRouge});

// The words that are counted, one blank between them.
std::string score_words(std::string_view line, const ScoreOptions& options);

}  // namespace regard::tasks
