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

TEST(ScoreWords, OfRougeAreLettersAndDigits) {
  EXPECT_EQ(score_words(" Don't go, 3.5 \u212A\u00E9x! ",
                        {.tokens = ScoreTokens::kRouge}),
            "don t go 3 5 k x");
}

// "the cat sat" against "the the cat on": words 2/3 and 2/4, pairs 1/2 and 1/3;
// in order, "the cat" is common.
TEST(Rouge, CountsWordsPairsAndTheLongestSubsequence) {
  const RougeScore score =
      rouge(Lines{"The cat sat."}, Lines{"the the CAT on"});
  EXPECT_NEAR(score.rouge1.precision, 100 * 2.0 / 3, 1e-9);
  EXPECT_NEAR(score.rouge1.recall, 100 * 2.0 / 4, 1e-9);
  EXPECT_NEAR(score.rouge1.f1, 100 * 4.0 / 7, 1e-9);
  EXPECT_NEAR(score.rouge2.f1, 100 * 2.0 / 5, 1e-9);
  EXPECT_NEAR(score.rougeL.f1, 100 * 4.0 / 7, 1e-9);
  // The words are the same, the order is not: two of three are in order.
  const RougeScore turned = rouge(Lines{"a b c"}, Lines{"c a b"});
  EXPECT_NEAR(turned.rouge1.f1, 100, 1e-9);
  EXPECT_NEAR(turned.rouge2.f1, 50, 1e-9);
  EXPECT_NEAR(turned.rougeL.f1, 100 * 2.0 / 3, 1e-9);
}

TEST(Rouge, IsTheMeanOverPairsAndZeroWithoutWords) {
  const RougeScore score = rouge(Lines{"a b", "!", "a"}, Lines{"a b", "a", ""});
  EXPECT_NEAR(score.rouge1.f1, 100.0 / 3, 1e-9);
  EXPECT_NEAR(score.rouge2.recall, 100.0 / 3, 1e-9);
  EXPECT_NEAR(score.rougeL.precision, 100.0 / 3, 1e-9);
}

TEST(Rouge, CountsChineseCharactersWhereAsked) {
  const Lines said = {"\u4F60\u597D"}, wanted = {"\u4F60\u6765"};
  EXPECT_EQ(rouge(said, wanted).rouge1.f1, 0);
  EXPECT_NEAR(rouge(said, wanted, {.tokens = ScoreTokens::kZh}).rouge1.f1, 50,
              1e-9);
}

TEST(Score, RefusesUnequalNumbersOfLines) {
  EXPECT_THAT(
      [] {
        bleu(Lines{"a"}, Lines{"a", "b"});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("at least one; got 2 and 1")));
  EXPECT_THAT([] { rouge(Lines{}, Lines{"a"}); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("rouge: there must be as many")));
  EXPECT_THAT(
      [] { chrf(Lines{}, Lines{}); },
      ThrowsMessage<InvalidArgument>(HasSubstr("at least one; got 0 and 0")));
}

}  // namespace
}  // namespace regard::tasks
