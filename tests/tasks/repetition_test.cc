// SPDX-License-Identifier: Apache-2.0
#include "tasks/repetition.h"

#include <gtest/gtest.h>

namespace regard::tasks {
namespace {

TEST(Repetition, IsTheSameWordsFourTimesInARow) {
  for (const char* lost :
       {"no no no no", "we want a plan, a plan, a plan, a plan, and",
        // A character of Chinese, and two.
        "\xE6\x88\x98\xE7\x95\xA5\xE7\x95\xA5\xE7\x95\xA5\xE7\x95\xA5",
        "\xE6\x88\x98\xE7\x95\xA5\xE6\x88\x98\xE7\x95\xA5\xE6\x88\x98\xE7\x95"
        "\xA5\xE6\x88\x98\xE7\x95\xA5"}) {
    EXPECT_TRUE(has_repetition(lost)) << lost;
  }
}

TEST(Repetition, IsNotWhatPeopleWrite) {
  for (const char* sane :
       {"", "no no no", "It costs 10000000 dollars.", "Well......", "1 1 1 1 1",
        "- - - - - -", "ten men went when then, 3.3.3.3.3.3",
        "the cat and the dog and the cat and the dog"}) {
    EXPECT_FALSE(has_repetition(sane)) << sane;
  }
}

TEST(Repetition, LooksAtBytesThatAreNoText) {
  EXPECT_FALSE(has_repetition("\xFF\xFE a"));
}

}  // namespace
}  // namespace regard::tasks
