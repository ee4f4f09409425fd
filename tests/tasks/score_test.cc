// SPDX-License-Identifier: Apache-2.0
// By hand; tests/tasks/sacrebleu_test.py compares with the package.
#include "regard/tasks/score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "regard/core/error.h"

namespace regard::tasks {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Lines = std::vector<std::string>;

TEST(Bleu, IsAHundredForTheReferenceItself) {
  const Lines lines = {"a b c d e", "the cat sat on the mat ."};
  EXPECT_NEAR(bleu(lines, lines).score, 100, 1e-9);
  EXPECT_NEAR(chrf(lines, lines), 100, 1e-9);
}

// 5 of 6 words, 3 of 5 pairs, 1 of 4, 0 of 3: half a match.
TEST(Bleu, CountsWordsPairsTriplesAndQuadruples) {
  const BleuScore score =
      bleu(Lines{"the cat sat on a mat"}, Lines{"the cat is on a mat"},
           {.tokens = ScoreTokens::kNone});
  EXPECT_NEAR(score.precisions[0], 100.0 * 5 / 6, 1e-9);
  EXPECT_NEAR(score.precisions[1], 100.0 * 3 / 5, 1e-9);
  EXPECT_NEAR(score.precisions[2], 100.0 * 1 / 4, 1e-9);
  EXPECT_NEAR(score.precisions[3], 100.0 / (2 * 3), 1e-9);
  EXPECT_NEAR(score.score,
              100 * std::pow(5.0 / 6 * 3 / 5 * 1 / 4 * 1 / 6, 0.25), 1e-9);
}

TEST(Bleu, PunishesShortTranslations) {
  const BleuScore score = bleu(Lines{"a b c d"}, Lines{"a b c d e f"});
  EXPECT_NEAR(score.brevity_penalty, std::exp(1 - 6.0 / 4), 1e-12);
  EXPECT_NEAR(score.score, 100 * std::exp(1 - 6.0 / 4), 1e-9);
  EXPECT_EQ(bleu(Lines{""}, Lines{"a b"}).score, 0);
}

TEST(Bleu, LowerCaseForgetsCapitals) {
  const Lines a = {"A B C D \xC3\x84"};
  const Lines b = {"a b c d \xC3\xA4"};
  EXPECT_EQ(bleu(a, b).score, 0);
  EXPECT_NEAR(bleu(a, b, {.lowercase = true}).score, 100, 1e-9);
  EXPECT_NEAR(chrf(a, b, {.lowercase = true}), 100, 1e-9);
}

TEST(ScoreWords, CutPunctuationButNotNumbers) {
  const auto words = [](const char* line) { return score_words(line, {}); };
  EXPECT_EQ(words("Hello, world!"), "Hello , world !");
  EXPECT_EQ(words("1,000.5 and 3."), "1,000.5 and 3 .");
  EXPECT_EQ(words("don't (say) e-mail 1990-2000"),
            "don't ( say ) e-mail 1990 - 2000");
  EXPECT_EQ(words("&quot;x&quot; &lt;"), "\" x \" <");
}

TEST(ScoreWords, CutEachChineseCharacter) {
  EXPECT_EQ(score_words("\xE4\xBD\xA0\xE5\xA5\xBD"
                        "abc.",
                        {.tokens = ScoreTokens::kZh}),
            "\xE4\xBD\xA0 \xE5\xA5\xBD abc .");
}

// "ab" against "abc": characters 2/2 and 2/3, pairs 1/1 and 1/2.
TEST(Chrf, WeighsRecallTwice) {
  const double precision = 1;
  const double recall = (2.0 / 3 + 1.0 / 2) / 2;
  EXPECT_NEAR(chrf(Lines{"ab"}, Lines{"a bc"}),
              100 * 5 * precision * recall / (4 * precision + recall), 1e-9);
}

TEST(Score, RefusesUnequalNumbersOfLines) {
  EXPECT_THAT(
      [] {
        bleu(Lines{"a"}, Lines{"a", "b"});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("at least one; got 2 and 1")));
  EXPECT_THAT(
      [] { chrf(Lines{}, Lines{}); },
      ThrowsMessage<InvalidArgument>(HasSubstr("at least one; got 0 and 0")));
}

}  // namespace
}  // namespace regard::tasks
