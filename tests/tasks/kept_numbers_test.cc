// SPDX-License-Identifier: Apache-2.0
#include "tasks/kept_numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace regard::tasks {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> kept(const std::string& sentence) {
  std::vector<std::string> found;
  for (const text::ByteRange& range : find_kept_numbers(sentence)) {
    found.push_back(
        sentence.substr(static_cast<std::size_t>(range.begin),
                        static_cast<std::size_t>(range.end - range.begin)));
  }
  return found;
}

TEST(KeptNumbers, AreThoseThatNobodySpellsOut) {
  EXPECT_THAT(kept("It costs 25.50 dollars."), ElementsAre("25.50"));
  EXPECT_THAT(kept("1,234 people, at 14:30, call 555-0199; v2 and 2.0.1."),
              ElementsAre("1,234", "14:30", "555-0199", "2.0.1"));
  EXPECT_THAT(kept("26.5 percent"), ElementsAre("26.5"));
  EXPECT_THAT(kept("13800138000"), ElementsAre("13800138000"));
  EXPECT_THAT(kept("in 1987, 2024."), ElementsAre("1987", "2024"));
}

TEST(KeptNumbers, AreNotSmallRoundOrMultipliedOnes) {
  EXPECT_THAT(kept("I have 25 books and 365 days."), IsEmpty());
  EXPECT_THAT(kept("25,000 people, 1,000,000 stars, 3000 miles"), IsEmpty());
  EXPECT_THAT(kept("2.5 million people"), IsEmpty());
  // 3.5 of ten thousand.
  EXPECT_THAT(kept("3.5\xE4\xB8\x87\xE4\xBA\xBA"), IsEmpty());
  EXPECT_THAT(kept("model A1234, https://a.org/2024/05?x=1.5"), IsEmpty());
  EXPECT_THAT(kept(""), IsEmpty());
}

bool has_all(const std::string& sentence, const std::string& translation) {
  return has_kept_numbers(sentence, find_kept_numbers(sentence), translation);
}

TEST(KeptNumbers, AreLookedForAsWholeNumbers) {
  EXPECT_TRUE(has_all("It costs 25.50.", "\xE5\xAE\x83 25.50\xE5\x85\x83"));
  EXPECT_FALSE(has_all("It costs 25.50.", "25"));
  EXPECT_FALSE(has_all("It costs 25.50.", "125.50"));
  EXPECT_FALSE(has_all("It costs 25.50.", "25.505"));
  EXPECT_TRUE(has_all("1,234 people", "1234"));
  EXPECT_TRUE(has_all("1234 people", "1,234"));
  EXPECT_FALSE(has_all("1,234 people", "1,23,4"));
  EXPECT_TRUE(has_all("no number", ""));
  // A colon of full width may part two numbers.
  const std::string parted =
      "23\xEF\xBC\x9A"
      "19871";
  EXPECT_TRUE(has_all(parted, parted));
}

TEST(KeptNumbers, TimesMayBeSaidInChinese) {
  EXPECT_TRUE(has_all("at 6:30", "6\xE7\x82\xB9\xE5\x8D\x8A"));
  EXPECT_TRUE(has_all("at 6:45",
                      "6\xE7\x82\xB9"
                      "45"));
  EXPECT_TRUE(has_all("at 6:00", "6\xE7\x82\xB9"));
  EXPECT_TRUE(has_all("at 6:45",
                      "6\xEF\xBC\x9A"
                      "45"));
  EXPECT_FALSE(has_all("at 6:45", "6\xE7\x82\xB9\xE5\x8D\x8A"));
  EXPECT_FALSE(has_all("at 6:30", "16\xE7\x82\xB9\xE5\x8D\x8A"));
  EXPECT_FALSE(has_all("at 6:30", "6"));
}

NumberStandIns stand_ins(const std::string& sentence, int kind) {
  return NumberStandIns::make(sentence, find_kept_numbers(sentence), kind)
      .value();
}

TEST(NumberStandIns, GiveWayToTheNumbers) {
  const NumberStandIns made = stand_ins("From 9:45 to 14:30.", 1);
  EXPECT_EQ(made.sentence(), "From 23 to 47.");
  // In any order, and each exactly once.
  EXPECT_EQ(made.put_back("Until 47 from 23!"), "Until 14:30 from 9:45!");
  EXPECT_FALSE(made.put_back("From 23 to 23."));
  EXPECT_FALSE(made.put_back("From 23, 23 to 47."));
  EXPECT_FALSE(made.put_back("From 23 to 470."));
  EXPECT_FALSE(made.put_back(""));
}

// A number that comes back may look like the stand-in of another.
TEST(NumberStandIns, AreReplacedAllAtOnce) {
  const NumberStandIns made = stand_ins("47-23 and 1-0", 1);
  EXPECT_EQ(made.sentence(), "68 and 92");
  EXPECT_EQ(made.put_back("92, 68"), "1-0, 47-23");
}

TEST(NumberStandIns, AreYearsOnlyForWholeNumbers) {
  EXPECT_FALSE(NumberStandIns::make("9:45", find_kept_numbers("9:45"), 0));
  EXPECT_EQ(stand_ins("1234 people", 0).sentence(), "1987 people");
  EXPECT_EQ(stand_ins("1987 people", 0).sentence(), "1964 people");
  // What has five digits is no year.
  const std::string year = "1987\xE5\xB9\xB4";
  EXPECT_FALSE(stand_ins("number 54321", 0).put_back(year));
  EXPECT_EQ(stand_ins("number 5432", 0).put_back(year), "5432\xE5\xB9\xB4");
}

TEST(NumberStandIns, EndWhereThereAreTooMany) {
  std::string many;
  for (int i = 0; i < 9; ++i) many += "1." + std::to_string(i) + " ";
  for (int kind = 0; kind < NumberStandIns::kKinds; ++kind) {
    EXPECT_FALSE(NumberStandIns::make(many, find_kept_numbers(many), kind));
  }
}

}  // namespace
}  // namespace regard::tasks
