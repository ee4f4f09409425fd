// SPDX-License-Identifier: Apache-2.0
#include "cli/heat_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <span>
#include <string>
#include <vector>

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
  EXPECT_THAT(text, HasSubstr("               o\n               m\n"
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

TEST(HeatMaps, OfNothingAreAnEmptyPicture) {
  EXPECT_THAT(drawn({1, 0, 0}, {}, {Ink::kAscii, 80}, {}),
              HasSubstr("head 0\n\n0 "));
  EXPECT_THAT(drawn({0, 3, 3}, {}, {Ink::kAscii, 80}, {}), HasSubstr("0 .."));
}

}  // namespace
}  // namespace regard::cli
