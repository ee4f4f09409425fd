// SPDX-License-Identifier: Apache-2.0
#include "regard/text/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <stdexcept>
#include <streambuf>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/text/utf8.h"
#include "text/lower_case.h"

namespace regard::text {
namespace {

using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  return read_lines(in, "input");
}

TEST(Lines, EndWithOrWithoutCarriageReturnsAndKeepBlankOnes) {
  EXPECT_THAT(lines_of("a\r\n\nb c\n"), ElementsAre("a", "", "b c"));
  EXPECT_THAT(lines_of("last"), ElementsAre("last"));
  EXPECT_THAT(lines_of(""), IsEmpty());
}

TEST(Lines, LeaveOutAByteOrderMark) {
  EXPECT_THAT(lines_of("\xEF\xBB\xBFHi.\nx"), ElementsAre("Hi.", "x"));
}

TEST(Lines, NameTheLineThatIsNotUtf8) {
  EXPECT_THAT(
      [] {
        lines_of(
            "good\nb\xFF"
            "d\n");
      },
      ThrowsMessage<ParseError>(
          HasSubstr("'input' must be UTF-8; line 2 is not, at its "
                    "byte 2")));
}

// As std::cin does where standard input is a folder.
TEST(Lines, OfAStreamThatCannotBeReadAreNoEmptyText) {
  struct Failing : std::streambuf {
    int_type underflow() override { throw std::runtime_error("no"); }
  } buffer;
  std::istream in(&buffer);
  EXPECT_THAT([&] { read_lines(in, "input"); },
              ThrowsMessage<IoError>(HasSubstr("cannot read 'input'")));
}

TEST(Lines, NameACompressedFile) {
  EXPECT_THAT([] { lines_of("\x1F\x8B\x08"); },
              ThrowsMessage<ParseError>(
                  HasSubstr("'input' is compressed (gzip); unpack it first")));
}

TEST(Lines, NameAFileThatIsNotThereOrAFolder) {
  const TemporaryFolder folder;
  EXPECT_THAT(
      [&] { read_lines(folder / "none"); },
      ThrowsMessage<IoError>(HasSubstr("none': No such file or directory")));
  EXPECT_THAT([&] { read_lines(folder.path()); },
              ThrowsMessage<IoError>(HasSubstr("it is a folder")));
}

TEST(Pairs, RefuseFilesOfUnequalLength) {
  const TemporaryFolder folder;
  write_text(folder / "a", "1\n2\n3\n");
  write_text(folder / "b", "1\n2\n");
  EXPECT_THAT([&] { read_pairs(folder / "a", folder / "b"); },
              ThrowsMessage<ParseError>(
                  AllOf(HasSubstr("a' has 3 lines"), HasSubstr("b' has 2"))));
}

TEST(Pairs, ComeFromOneFileWithTabs) {
  const TemporaryFolder folder;
  write_text(folder / "t", "Hi.\thallo\tby somebody\na\tb\n");
  const Pairs pairs = read_tsv(folder / "t");
  EXPECT_THAT(pairs.sources, ElementsAre("Hi.", "a"));
  EXPECT_THAT(pairs.targets, ElementsAre("hallo", "b"));
  write_text(folder / "t", "a\tb\nno tab\n");
  EXPECT_THAT([&] { read_tsv(folder / "t"); },
              ThrowsMessage<ParseError>(HasSubstr("has no tab in line 2")));
}

TEST(Utf8, FindsWhatIsNotValid) {
  const auto npos = std::string::npos;
  EXPECT_EQ(find_invalid_utf8("plain"), npos);
  EXPECT_EQ(find_invalid_utf8("\xC3\xA4\xE4\xBD\xA0\xF0\x9F\x98\x80"), npos);
  EXPECT_EQ(find_invalid_utf8("a\x80"), 1u);             // no lead
  EXPECT_EQ(find_invalid_utf8("\xC0\xAF"), 0u);          // over-long
  EXPECT_EQ(find_invalid_utf8("\xE0\x80\x80"), 0u);      // over-long
  EXPECT_EQ(find_invalid_utf8("\xED\xA0\x80"), 0u);      // surrogate
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0u);  // beyond U+10FFFF
  EXPECT_EQ(find_invalid_utf8("ab\xE4\xBD"), 2u);        // cut off
}

TEST(Utf8, CodePointsComeBack) {
  const std::string text = "a\xC3\xA4\xE4\xBD\xA0\xF0\x9F\x98\x80";
  const std::u32string points = code_points(text);
  EXPECT_EQ(points, (std::u32string{U'a', 0xE4, 0x4F60, 0x1F600}));
  std::string back;
  for (const char32_t point : points) append_utf8(back, point);
  EXPECT_EQ(back, text);
  EXPECT_THAT([] { code_points("\xFF"); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("the text must be UTF-8; it is not at byte 0")));
}

TEST(LowerCase, KnowsLettersOfManyScripts) {
  EXPECT_EQ(lower_case(U"AbZ[1"), U"abz[1");
  EXPECT_EQ(lower_case(std::u32string{0xC4, 0x178, 0x100, 0x101, 0x391, 0x416}),
            (std::u32string{0xE4, 0xFF, 0x101, 0x101, 0x3B1, 0x436}));
  EXPECT_EQ(lower_case(std::u32string{0x130}), (std::u32string{'i', 0x307}));
  EXPECT_EQ(lower_case(std::u32string{0x4F60, 0xDF}),
            (std::u32string{0x4F60, 0xDF}));
}

}  // namespace
}  // namespace regard::text
