// SPDX-License-Identifier: Apache-2.0
#include "cli/heat_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "regard/core/error.h"

namespace regard::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string drawn(const HeatMaps::Sizes& sizes, HeatMaps::Labels labels,
                  const Screen& screen, const std::vector<float>& weights) {
  HeatMaps maps(sizes, std::move(labels), screen);
  const float* row = weights.data();
  for (std::int64_t head = 0; head < sizes.heads; ++head) {
    for (std::int64_t i = 0; i < sizes.q_len; ++i, row += sizes.kv_len) {
      maps.add_row(head, i, row);
    }
  }
  return maps.draw();
}

TEST(HeatMaps, DrawShadesInAscii) {
  EXPECT_EQ(drawn({1, 2, 3}, {{"it", "was"}, {"a", "bc", "d"}},
                  {Ink::kAscii, 80}, {0, 0.5f, 1, 0.01f, 0.2f, 0.79f}),
            "    head 0\n"
            "      b\n"
            "    a c d\n"
            "it    ++@@\n"
            "was ..::%%\n"
            "\n"
            "0 ..::--==++++**##%%@@ 1\n");
}

TEST(HeatMaps, DrawShadesInBlocks) {
  const std::string text =
      drawn({1, 1, 5}, {}, {Ink::kBlocks, 80}, {0.1f, 0.3f, 0.5f, 0.7f, 0.9f});
  // The scale ends at the largest weight, so 0.1 of 0.9 is the lowest fifth.
  EXPECT_THAT(text, HasSubstr("0 \u00b7\u00b7\u2591\u2591\u2592\u2592\u2593"
                              "\u2593\u2588\u2588\n"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(HeatMaps, DrawColorsOf24BitsAndOfThePalette) {
  const HeatMaps::Sizes sizes = {1, 1, 3};
  const std::vector<float> weights = {1, 1, 0.5f};
  // One escape for two cells of one colour; back to normal at the end.
  EXPECT_THAT(drawn(sizes, {}, {Ink::kTrueColor, 80}, weights),
              HasSubstr("0 \x1b[48;2;253;231;37m    "
                        "\x1b[48;2;33;145;140m  \x1b[0m"));
  EXPECT_THAT(drawn(sizes, {}, {Ink::kColors256, 80}, weights),
              HasSubstr("0 \x1b[48;5;226m    \x1b[48;5;42m  \x1b[0m"));
}

TEST(HeatMaps, LeaveHiddenPairsBlankAndMarkNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(drawn({1, 1, 3}, {}, {Ink::kTrueColor, 80}, {0, nan, 1}),
              HasSubstr("0   ??\x1b[48;2;253;231;37m  \x1b[0m"));
  EXPECT_THAT(drawn({1, 1, 2}, {}, {Ink::kAscii, 80}, {0, 0}),
              HasSubstr("0\n\n0 ..::--==++++**##%%@@ 0\n"));
}

TEST(HeatMaps, StandSideBySideAsFarAsTheScreenIsWide) {
  // A label and a blank, 8 cells each, 2 between: three need 2 + 28.
  const std::vector<float> weights(4 * 4, 0.25f);
  EXPECT_THAT(drawn({4, 1, 4}, {}, {Ink::kAscii, 30}, weights),
              HasSubstr("  head 0    head 1    head 2\n"));
  EXPECT_THAT(drawn({4, 1, 4}, {}, {Ink::kAscii, 29}, weights),
              HasSubstr("  head 0    head 1\n"));
}

TEST(HeatMaps, KeepWideCharactersInTheirColumns) {
  EXPECT_EQ(drawn({1, 2, 2}, {{"\u6ce8", "it"}, {"\u6ce8", "it"}},
                  {Ink::kAscii, 80}, {1, 0, 0, 1}),
            "   head 0\n"
            "     i\n"
            "   \u6ce8t\n"
            "\u6ce8 @@\n"
            "it   @@\n"
            "\n"
            "0 ..::--==++++**##%%@@ 1\n");
}

TEST(HeatMaps, CutLongLabels) {
  const std::string text =
      drawn({1, 1, 1}, {{"incomprehensible"}, {"incomprehensible"}},
            {Ink::kAscii, 80}, {1});
  EXPECT_THAT(text, HasSubstr("incomprehensib @@\n"));
  EXPECT_THAT(text, HasSubstr("               h\n               e\n"
                              "incompre"));
}

TEST(HeatMaps, DrawTheLargestOfABlockWhereThereIsNoRoom) {
  // 20 columns, a label of 2 and a blank: 8 cells for 20 keys, so blocks of 3.
  std::vector<float> weights(20 * 20, 0.001f);
  weights[19 * 20 + 19] = 1;
  weights[4 * 20 + 0] = 0.5f;
  const std::string text = drawn({1, 20, 20}, {}, {Ink::kAscii, 20}, weights);
  EXPECT_THAT(text, HasSubstr("\n3  ++............\n"));
  EXPECT_THAT(text, HasSubstr("\n18 ............@@\n"));
  EXPECT_THAT(text, HasSubstr("; a cell is the largest of 3 x 3 weights\n"));
}

// Two queries a line, a cell for each key: one half of the cell is the letter's
// colour, the other that of the ground.
TEST(HeatMaps, DrawHalfBlocksWhereColorsLetThemBeSmall) {
  // 20 columns are too few for 12 keys of two cells, and enough for one each.
  std::vector<float> weights(3 * 12);
  weights[0] = 1;                // above, with nothing below
  weights[12 + 1] = 1;           // below, with nothing above
  weights[2] = weights[14] = 1;  // both
  weights[3] = std::numeric_limits<float>::quiet_NaN();
  weights[24 + 11] = 1;  // the third row is the upper half of the second line
  const std::string text =
      drawn({1, 3, 12}, {}, {Ink::kTrueColor, 20}, weights);
  const std::string one = "2;253;231;37";
  EXPECT_THAT(text, HasSubstr("  head 0\n  0         10\n"));
  EXPECT_THAT(text, HasSubstr("\n0 \x1b[0;38;" + one + "m\u2580\u2584\x1b[38;" +
                              one + ";48;" + one + "m\u2580\x1b[0m?\n"));
  EXPECT_THAT(
      text, HasSubstr("\n2            \x1b[0;38;" + one + "m\u2580\x1b[0m\n"));
  EXPECT_THAT(text, HasSubstr("; a line is two cells high\n"));
  EXPECT_THAT(drawn({1, 3, 12}, {}, {Ink::kColors256, 20}, weights),
              HasSubstr("\x1b[0;38;5;226m\u2580"));
  // Where only ASCII can be shown, blocks of weights must do.
  EXPECT_THAT(drawn({1, 3, 12}, {}, {Ink::kColors256, 20, false}, weights),
              HasSubstr("a cell is the largest of 2 x 2 weights"));
}

TEST(HeatMaps, DrawTheHeadsThatAreChosen) {
  HeatMaps maps({3, 1, 1}, {}, {Ink::kAscii, 80}, {{2, 0}, 0});
  const float none = 0;
  const float all = 1;
  maps.add_row(0, 0, &none);
  maps.add_row(1, 0, &none);
  maps.add_row(2, 0, &all);
  EXPECT_THAT(maps.draw(), HasSubstr("  head 2    head 0\n"));
  EXPECT_THAT(maps.draw(), HasSubstr("\n0 @@\n"));
  EXPECT_THAT(
      [] {
        HeatMaps({3, 1, 1}, {}, {}, {{3}, 0});
      },
      ::testing::ThrowsMessage<InvalidArgument>(
          HasSubstr("--head: there are heads 0 .. 2; got 3")));
}

TEST(HeatMaps, ListTheStrongestKeys) {
  HeatMaps maps({1, 2, 4}, {{"it", "\u5979"}, {"a", "b", "\u732b", "d\x1b"}},
                {Ink::kAscii, 80}, {{}, 2});
  const std::vector<float> first = {0.1f, 0.4f, 0.4f, 0.1f};
  const std::vector<float> second = {0, 0, 0, 1};
  maps.add_row(0, 0, first.data());
  maps.add_row(0, 1, second.data());
  EXPECT_TRUE(
      maps.draw().ends_with("\nhead 0: the strongest keys of each query\n"
                            "it  b 0.400  \u732b 0.400\n"
                            "\u5979  d\ufffd 1.000\n"))
      << maps.draw();
}

TEST(HeatMaps, OfNothingAreAnEmptyPicture) {
  EXPECT_THAT(drawn({1, 0, 0}, {}, {Ink::kAscii, 80}, {}),
              HasSubstr("head 0\n\n0 "));
  EXPECT_THAT(drawn({0, 3, 3}, {}, {Ink::kAscii, 80}, {}), HasSubstr("0 .."));
}

}  // namespace
}  // namespace regard::cli
