// SPDX-License-Identifier: Apache-2.0
#include "regard/text/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/files.h"
#include "regard/core/error.h"

namespace regard::text {
namespace {

using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class TableFile : public ::testing::Test {
 protected:
  Table read(const std::string& name, const std::string& text,
             const std::vector<std::string>& columns = {"text", "label"}) {
    write_text(folder_ / name, text);
    return read_table(folder_ / name, columns);
  }
  void expect_refusal(const std::string& name, const std::string& text,
                      const std::string& message) {
    EXPECT_THAT([&] { read(name, text); },
                ThrowsMessage<ParseError>(HasSubstr(message)));
  }
  TemporaryFolder folder_;
};

TEST_F(TableFile, OfTabsIsReadByItsHeader) {
  const Table table =
      read("a.tsv",
           "\xEF\xBB\xBFlabel\tid\ttext\r\ngood\t1\ta \"b\", c\r\n\n"
           "bad\t2\td");
  EXPECT_THAT(table.columns[0], ElementsAre("a \"b\", c", "d"));
  EXPECT_THAT(table.columns[1], ElementsAre("good", "bad"));
  EXPECT_THAT(table.lines, ElementsAre(2, 4));
}

TEST_F(TableFile, OfCommasMayQuoteFieldsThatGoOn) {
  const Table table =
      read("a.CSV",
           "text,label\n\"a, \"\"b\"\"\",x\n\"two\r\nlines\",y\nplain,\"z\"\n");
  EXPECT_THAT(table.columns[0], ElementsAre("a, \"b\"", "two\nlines", "plain"));
  EXPECT_THAT(table.columns[1], ElementsAre("x", "y", "z"));
  EXPECT_THAT(table.lines, ElementsAre(2, 3, 5));
}

TEST_F(TableFile, OfJsonHasNamedFields) {
  const Table table = read("a.jsonl",
                           "{\"label\": 3, \"text\": \"a\\tb\"}\n"
                           "{\"text\": \"\\u00e9\", \"x\": [], \"label\": "
                           "\"n\"}\n");
  EXPECT_THAT(table.columns[0], ElementsAre("a\tb", "\xC3\xA9"));
  EXPECT_THAT(table.columns[1], ElementsAre("3", "n"));
}

// Else all of it would be a header, and a table without rows.
TEST_F(TableFile, WithTheLineEndsOfOldMacsIsRefused) {
  const std::string message =
      "line 1: lines must end with \\n or \\r\\n; here they end with \\r alone";
  expect_refusal("mac.csv", "text,label\rgood food,positive\rbad,negative\r",
                 message);
  expect_refusal("mac.tsv", "text\tlabel\rgood food\tpositive\r", message);
  const auto refused = [&](const auto& read) {
    EXPECT_THAT(read, ThrowsMessage<ParseError>(HasSubstr(message)));
  };
  refused([&] { has_column(folder_ / "mac.csv", "label"); });
  write_text(folder_ / "log.txt", "u a 1\ru b 2\r");
  refused([&] { read_table_without_header(folder_ / "log.txt"); });
  // Within a quoted field it is text.
  EXPECT_THAT(read("a.csv", "text,label\n\"a\rb\",c\n").columns[0],
              ElementsAre("a\rb"));
}

TEST_F(TableFile, NamesTheLineThatIsWrong) {
  expect_refusal("a.tsv", "text\tlabel\na\tb\nc\n",
                 "a.tsv', line 3: there must be 2 fields, as in the header; "
                 "got 1");
  expect_refusal("a.tsv", "text\tlabel\na\tb\tc\n", "line 2: there must be 2");
  expect_refusal("a.tsv", "text\tlabel\na\t \n",
                 "line 2: the field 'label' must not be blank");
  expect_refusal("a.tsv", "text\tname\na\tb\n",
                 "line 1: the header must name the column 'label'; it names "
                 "'text', 'name'");
  expect_refusal("a.tsv", "text\tlabel\ttext\na\tb\tc\n",
                 "the header must name the column 'text' once");
  expect_refusal("a.tsv", "\n", "the file is blank");
  expect_refusal("a.tsv", "text\tlabel\na\xFF\tb\n",
                 "line 2: the text must be UTF-8; it is not");
  expect_refusal("a.csv", "text,label\na,b\n\"c,d\n",
                 "line 3: a quoted field must have an end");
  expect_refusal("a.csv", "text,label\n\"a\"b,c\n",
                 "line 2: a comma must follow a quoted field; got 'b,c'");
  expect_refusal("a.csv", "text,label\nsay \"a\",c\n",
                 "line 2: a field with a quote must be in quotes");
  expect_refusal("a.jsonl", "{\"text\":\"a\",\"label\":\"b\"}\n[1]\n",
                 "line 2: there must be one JSON object; got '[1]'");
  expect_refusal("a.jsonl", "{\"text\":\"a\"\n", "line 1: there must be one");
  expect_refusal("a.jsonl", "{\"text\":\"a\"}\n",
                 "line 1: the object must have the field 'label'");
  expect_refusal("a.jsonl", "{\"text\":\"a\",\"label\":1.5}\n",
                 "the field 'label' must be a string or an integer; it is of "
                 "the type number");
  expect_refusal("a.txt", "text\tlabel\n",
                 "the name of a table must end in .tsv, .csv, .jsonl or "
                 ".ndjson; it is '");
}

}  // namespace
}  // namespace regard::text
