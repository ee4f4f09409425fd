// SPDX-License-Identifier: Apache-2.0
#include "cli/alignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace regard::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> texts_of(const std::vector<std::string>& pieces) {
  std::vector<std::string> texts;
  std::size_t end = 0;
  for (const AlignedWord& word : words_of(pieces)) {
    EXPECT_EQ(word.begin, end);
    end = word.end;
    texts.push_back(word.text);
  }
  EXPECT_EQ(end, pieces.size());
  return texts;
}

TEST(Alignment, WordsAreMadeOfTheirPieces) {
  EXPECT_THAT(
      texts_of({"<2zh>", "\u2581The", "\u2581an", "i", "mal", "\u2581didn", "'",
                "t", "\u2581stop", ".", "</s>"}),
      ElementsAre("<2zh>", "The", "animal", "didn't", "stop", ".", "</s>"));
}

TEST(Alignment, ChineseKeepsItsPieces) {
  EXPECT_THAT(texts_of({"\u2581", "\u6211", "\u559c\u6b22", "T", "om", "\u3002",
                        "</s>"}),
              ElementsAre("\u6211", "\u559c\u6b22", "Tom", "\u3002", "</s>"));
}

TEST(Alignment, UnmarkedPiecesAreWordsUnlessTheyAreOpen) {
  EXPECT_THAT(texts_of({"sun", "mo@@", "on", "</s>"}),
              ElementsAre("sun", "moon", "</s>"));
  EXPECT_THAT(texts_of({}), IsEmpty());
}

TEST(Alignment, BytesThatAreNoTextStayAlone) {
  EXPECT_THAT(texts_of({"\u2581a", "\xE5", "b"}),
              ElementsAre("a", "\xE5", "b"));
}

TEST(Alignment, AWordGetsTheSumAndGivesTheMeanOfItsPieces) {
  tasks::Translation translation;
  translation.source_pieces = {"\u2581a", "\u2581b", "c"};
  translation.target_pieces = {"\u2581x", "y"};
  translation.alignment = {{0.0f, 0.5f, 0.5f}, {0.2f, 0.4f, 0.4f}};
  EXPECT_EQ(draw_alignment(translation, {Ink::kAscii, 80}),
            "     b\n"
            "   a c\n"
            "xy ::@@\n"
            "\n"
            "0 ..::--==++++**##%%@@ 0.9\n");
  translation.target_pieces.clear();
  EXPECT_EQ(draw_alignment(translation, {Ink::kAscii, 80}), "");
}

}  // namespace
}  // namespace regard::cli
