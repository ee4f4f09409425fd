// SPDX-License-Identifier: Apache-2.0
#include "regard/core/error.h"

#include <gtest/gtest.h>

#include <cctype>
#include <string>

#include "regard/core/version.h"

namespace regard {
namespace {

template <typename Error, typename Action>
std::string text_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Error, TextNamesTheFunctionTheRuleAndWhatCame) {
  EXPECT_EQ(text_of<InvalidArgument>(
                [] { require(false, "f", "n must be positive; got ", -3); }),
            "f: n must be positive; got -3");
  EXPECT_EQ(text_of<IoError>([] { throw_io_error("g", "disk full"); }),
            "g: disk full");
  EXPECT_EQ(text_of<ParseError>([] { throw_parse_error("h", 1, '/', 2.5); }),
            "h: 1/2.5");
}

TEST(Error, IsNotThrownWhileTheRuleHolds) {
  EXPECT_NO_THROW(require(true, "f", "never seen"));
}

TEST(Error, IsCaughtAsAStandardException) {
  EXPECT_THROW(require(false, "f", "x"), std::invalid_argument);
  EXPECT_THROW(throw_io_error("f", "x"), std::runtime_error);
  EXPECT_THROW(throw_parse_error("f", "x"), std::runtime_error);
}

TEST(Version, IsThreeNumbers) {
  const std::string text = version();
  int dots = 0;
  for (const char c : text) {
    if (c == '.') {
      ++dots;
    } else {
      EXPECT_TRUE(std::isdigit(static_cast<unsigned char>(c))) << text;
    }
  }
  EXPECT_EQ(dots, 2) << text;
}

}  // namespace
}  // namespace regard
