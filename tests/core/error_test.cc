// SPDX-License-Identifier: Apache-2.0
#include "regard/core/error.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>

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

// What is thrown for `parts` and what a stream writes.
template <typename... Parts>
void expect_as_streamed(const Parts&... parts) {
  std::ostringstream text;
  text << "f: ";
  (text << ... << parts);
  EXPECT_EQ(text_of<InvalidArgument>([&] { require(false, "f", parts...); }),
            text.str());
}

enum Unscoped { kSeven = 7 };

TEST(Error, WritesEveryPartAsAStreamDoes) {
  expect_as_streamed("literal", std::string("string"),
                     std::string_view("a view of it", 6), 'c');
  EXPECT_EQ(detail::compose("f", {std::string("with\0zero", 9)}),
            std::string("f: with\0zero", 12));
  expect_as_streamed(std::numeric_limits<std::int64_t>::min(), ' ',
                     std::numeric_limits<std::uint64_t>::max(), ' ',
                     static_cast<std::int16_t>(-3), ' ',
                     static_cast<std::uint16_t>(40000));
  expect_as_streamed(true, false, static_cast<unsigned char>('u'),
                     static_cast<signed char>('s'), kSeven);
  expect_as_streamed(0.1f, ' ', 1e-30, ' ', 123456789.0f, ' ',
                     std::numeric_limits<float>::quiet_NaN(), ' ',
                     -std::numeric_limits<double>::infinity());
  expect_as_streamed(std::filesystem::path("a folder/file"));
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
