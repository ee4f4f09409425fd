// SPDX-License-Identifier: Apache-2.0
#include "cli/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace regard::cli {
namespace {

using ::testing::ElementsAre;

// "Attention" in Chinese: four characters of two cells each.
const std::string kChinese = "\u6ce8\u610f\u529b\u673a";

TEST(CellsOf, CountsTwoForChineseAndNoneForMarks) {
  EXPECT_EQ(cells_of(""), 0);
  EXPECT_EQ(cells_of("because"), 7);
  EXPECT_EQ(cells_of(kChinese), 8);
  EXPECT_EQ(cells_of("e\u0301te\u0301"), 3);
  EXPECT_EQ(cells_of("\uff0c\U0001f600"), 4);
}

TEST(Fitted, CutsAndFillsToCells) {
  EXPECT_EQ(fitted("it", 4), "it  ");
  EXPECT_EQ(fitted("because", 4), "beca");
  EXPECT_EQ(fitted(kChinese, 4), "\u6ce8\u610f");
  // Half a character cannot be shown.
  EXPECT_EQ(fitted(kChinese, 5), "\u6ce8\u610f ");
}

TEST(GlyphsOf, DefusesControlCharactersAndBrokenUtf8) {
  const std::string bad = "\ufffd";
  EXPECT_EQ(fitted("a\x1b[31mb", 6), "a" + bad + "[31m");
  EXPECT_EQ(fitted("\x80z", 2), bad + "z");
  EXPECT_EQ(fitted("\xc3", 1), bad);                      // cut off
  EXPECT_EQ(fitted("\xc0\xaf", 2), bad + bad);            // a slash, too long
  EXPECT_EQ(fitted("\xed\xa0\x80", 3), bad + bad + bad);  // a surrogate
  EXPECT_EQ(fitted("\xf5\x80\x80\x80", 4), bad + bad + bad + bad);
  EXPECT_EQ(fitted("\u202e", 1), bad);  // would turn the line around
  EXPECT_EQ(fitted("\xf0\x9f\x98\x80", 2), "\U0001f600");
}

TEST(WordsOf, SplitsAtBlanksAndAroundChinese) {
  EXPECT_THAT(words_of("  The animal\tdidn't\n"),
              ElementsAre("The", "animal", "didn't"));
  EXPECT_THAT(words_of("\u6ce8\u610fGPT\u529b\u3000x"),
              ElementsAre("\u6ce8", "\u610f", "GPT", "\u529b", "x"));
  EXPECT_TRUE(words_of(" \t ").empty());
}

TEST(Wrapped, BreaksBetweenWordsAndIndents) {
  EXPECT_EQ(wrapped("one two three", 2, 10), "  one two\n  three\n");
  EXPECT_EQ(wrapped("incomprehensible x", 0, 5), "incomprehensible\nx\n");
  EXPECT_EQ(wrapped("", 2, 10), "  \n");
}

TEST(OnOneLine, ShowsControlCharacters) {
  EXPECT_EQ(on_one_line("a\nb\x1b\x7f"), "a\\x0ab\\x1b\\x7f");
  EXPECT_EQ(on_one_line(kChinese), kChinese);
  // The one that begins a command as ESC [ does, and the one after the last.
  EXPECT_EQ(on_one_line("\u009bm\u00a0\xc2"), "\\xc2\\x9bm\u00a0\xc2");
}

}  // namespace
}  // namespace regard::cli
