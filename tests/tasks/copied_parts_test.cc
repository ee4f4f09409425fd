// SPDX-License-Identifier: Apache-2.0
#include "tasks/copied_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "io/files.h"

namespace regard::tasks {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> addresses(const std::string& text) {
  std::vector<std::string> found;
  for (const text::ByteRange& range : find_addresses(text)) {
    found.push_back(
        text.substr(static_cast<std::size_t>(range.begin),
                    static_cast<std::size_t>(range.end - range.begin)));
  }
  return found;
}

TEST(CopiedParts, FindsAddresses) {
  EXPECT_THAT(addresses("See https://a.org/x?y=1#z, and http://b.de."),
              ElementsAre("https://a.org/x?y=1#z", "http://b.de"));
  EXPECT_THAT(addresses("(www.example.com)"), ElementsAre("www.example.com"));
  EXPECT_THAT(addresses("Write to jo.do-1@mail.example.org!"),
              ElementsAre("jo.do-1@mail.example.org"));
  // Chinese goes on without a blank.
  EXPECT_THAT(addresses("\xE7\x9C\x8Bhttps://a.org/b\xE3\x80\x82"),
              ElementsAre("https://a.org/b"));
  EXPECT_THAT(addresses("a @ b, x@y, @home, http:// and 3.14 www."), IsEmpty());
}

std::unique_ptr<text::Tokenizer> words() {
  return text::make_word_tokenizer(
      std::vector<std::string>{"I see the house of my friend . moi maison"});
}

TEST(CopiedParts, AreWhatThePiecesDoNotKnow) {
  const auto tokenizer = words();
  const SourceText source =
      read_source(*tokenizer, "I see Zork the https://a.org/b house");
  ASSERT_EQ(source.parts.size(), 2u);
  EXPECT_EQ(source.parts[0].text, "Zork");
  EXPECT_EQ(source.parts[0].begin, 2);
  EXPECT_EQ(source.parts[1].text, "https://a.org/b");
  EXPECT_EQ(source.parts[1].begin, 4);
  EXPECT_EQ(source.pieces.size(), 6u);
  EXPECT_TRUE(read_source(*tokenizer, "I see the house").parts.empty());
  // Pieces of words that are cut already are none.
  EXPECT_TRUE(read_source(*tokenizer, "I see Zo@@ rk").parts.empty());
}

TEST(CopiedParts, SymbolsAtTheEndsAreNotTranslated) {
  const std::string smile = "\xF0\x9F\x98\x80";
  const SourceText source =
      read_source(*words(), smile + " I see " + smile + smile);
  EXPECT_EQ(source.head, smile + " ");
  EXPECT_EQ(source.tail, " " + smile + smile);
  EXPECT_EQ(source.pieces.size(), 2u);
  EXPECT_THAT(source.parts, IsEmpty());
  const SourceText alone = read_source(*words(), smile);
  EXPECT_EQ(alone.head + alone.tail, smile);
  EXPECT_THAT(alone.pieces, IsEmpty());
}

// A piece for each letter, and one for an e with an acute accent.
std::unique_ptr<text::Tokenizer> letters() {
  const testing::TemporaryFolder folder;
  testing::write_text(folder / "tokenizer.json",
                      R"({"decoder":{"type":"Fuse"},"model":{"type":"BPE",
                          "unk_token":"?","merges":[],"vocab":{"?":0," ":1,
                          "c":2,"a":3,"f":4,"e":5,"x":6,"\u00e9":7}}})");
  return text::load_tokenizer(folder / "tokenizer.json");
}

TEST(CopiedParts, AnAccentIsReadWithItsLetter) {
  const auto tokenizer = letters();
  const SourceText apart = read_source(*tokenizer, "cafe\xCC\x81 Q");
  EXPECT_EQ(apart.pieces, read_source(*tokenizer, "caf\xC3\xA9 Q").pieces);
  ASSERT_EQ(apart.parts.size(), 1u);
  EXPECT_EQ(apart.parts[0].text, "Q");
  EXPECT_EQ(apart.parts[0].begin, 5);
}

TEST(CopiedParts, AnAccentThatNoLetterHasIsLeftOut) {
  const auto tokenizer = letters();
  for (const char* text : {"x\xCC\x84 Q face", "x\xCC\x84Q face"}) {
    const SourceText source = read_source(*tokenizer, text);
    ASSERT_EQ(source.parts.size(), 1u) << text;
    EXPECT_EQ(source.parts[0].text, "Q");
  }
  EXPECT_THAT(read_source(*tokenizer, "x\xCC\x84 face").parts, IsEmpty());
  // What chooses the look of an emoji is none.
  const std::string look = "\xEF\xB8\x8F";
  const SourceText source = read_source(*tokenizer, "x" + look + " face");
  ASSERT_EQ(source.parts.size(), 1u);
  EXPECT_EQ(source.parts[0].text, look);
}

class Copying : public ::testing::Test {
 protected:
  std::string copied(const std::string& source, const std::string& said,
                     const std::vector<std::vector<float>>& weights) const {
    return with_copied_parts(read_source(*tokenizer_, source), *tokenizer_,
                             tokenizer_->encode(said), weights);
  }
  std::unique_ptr<text::Tokenizer> tokenizer_ = words();
};

TEST_F(Copying, AnUnknownPieceStandsForThePartItLookedAt) {
  // The second looks at the first part, the third at the last.
  EXPECT_EQ(copied("Zork see Bork", "moi ?? ??",
                   {{0, 1, 0}, {0.1f, 0.1f, 0.8f}, {0.5f, 0.1f, 0.4f}}),
            "moi Bork Zork");
}

TEST_F(Copying, APartThatIsNotSaidComesWhereItWasLookedAt) {
  EXPECT_EQ(copied("see Zork house", "moi maison .",
                   {{0.2f, 0.6f, 0.2f}, {0, 0.3f, 0.7f}, {0, 0, 1}}),
            "moi Zork maison .");
  EXPECT_EQ(copied("see https://a.org/b", "moi maison .",
                   {{1, 0}, {0.4f, 0.6f}, {1, 0}}),
            "moi maison https://a.org/b .");
  // Not behind the stop.
  EXPECT_EQ(
      copied("see https://a.org/b", "moi maison .", {{1, 0}, {1, 0}, {0, 1}}),
      "moi maison https://a.org/b.");
}

TEST_F(Copying, WhatHasNoWordIsItsOwnTranslation) {
  for (const char* text : {"https://a.org/b", "(www.a.org), jo@a.org!"}) {
    const SourceText source = read_source(*tokenizer_, text);
    EXPECT_EQ(source.head, text);
    EXPECT_THAT(source.pieces, IsEmpty());
    EXPECT_THAT(source.parts, IsEmpty());
  }
}

TEST_F(Copying, NothingIsInventedAndNothingLost) {
  // Three unknown pieces for one part, and none at all.
  EXPECT_EQ(
      copied("see Zork", "?? ?? moi ??", {{0, 1}, {0, 1}, {1, 0}, {0, 1}}),
      "Zork moi");
  EXPECT_EQ(copied("see Zork", "", {}), "Zork");
}

}  // namespace
}  // namespace regard::tasks
