// SPDX-License-Identifier: Apache-2.0
#include "regard/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/core/random.h"

namespace regard::text {
namespace {

using regard::testing::read_text;
using regard::testing::TemporaryFolder;
using regard::testing::write_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

TEST(Words, AreNumberedByTheirCount) {
  const std::vector<std::string> lines = {"b a b", "c b  a\td"};
  const auto tokenizer = make_word_tokenizer(lines);
  EXPECT_EQ(tokenizer->size(), 7);
  EXPECT_THAT(tokenizer->encode("b a c d x"), ElementsAre(3, 4, 5, 6, 0));
  EXPECT_EQ(tokenizer->piece(3), "b");
  EXPECT_EQ(tokenizer->id_of("b"), 3);
  EXPECT_EQ(tokenizer->id_of("zzz"), kUnknown);
  EXPECT_THAT(tokenizer->encode("  "), IsEmpty());
}

TEST(Words, RareOnesAreLeftOutWhereAsked) {
  const std::vector<std::string> lines = {"b a b"};
  EXPECT_EQ(make_word_tokenizer(lines, {.min_count = 2, .tags = {}})->size(),
            4);
}

TEST(Words, PiecesThatEndInTwoAtSignsAreJoined) {
  const std::vector<std::string> lines = {"an@@ st@@ arr@@ t . @@ x@@"};
  const auto tokenizer = make_word_tokenizer(lines);
  const auto decoded = [&](const char* text) {
    return tokenizer->decode(tokenizer->encode(text));
  };
  EXPECT_EQ(decoded("an@@ st@@ arr@@ t ."), "anstarrt .");
  EXPECT_EQ(decoded("t x@@"), "t x");
  EXPECT_EQ(decoded("@@ t"), "@@ t");
}

TEST(Words, TagsAndEndsLeaveNoTraceAndAreNotRead) {
  const std::vector<std::string> lines = {"a <2de> </s>"};
  const auto tokenizer =
      make_word_tokenizer(lines, {.min_count = 1, .tags = {"<2de>"}});
  const std::int32_t tag = tokenizer->id_of("<2de>");
  const std::int32_t a = tokenizer->id_of("a");
  EXPECT_EQ(tag, 3);
  EXPECT_THAT(tokenizer->encode("a <2de> </s>"), ElementsAre(a, 0, 0));
  const std::vector<std::int32_t> ids = {kBegin, tag, a, kEnd};
  EXPECT_EQ(tokenizer->decode(ids), "a");
}

TEST(Words, ComeBackFromTheirFile) {
  const TemporaryFolder folder;
  const std::vector<std::string> lines = {"b a b \xE4\xBD\xA0"};
  const auto tokenizer =
      make_word_tokenizer(lines, {.min_count = 1, .tags = {"<2x>"}});
  tokenizer->save(folder.path());
  const auto again = load_tokenizer(folder.path());
  ASSERT_EQ(again->size(), tokenizer->size());
  for (std::int32_t i = 0; i < again->size(); ++i) {
    EXPECT_EQ(again->piece(i), tokenizer->piece(i));
  }
  EXPECT_THAT(again->encode("<2x>"), ElementsAre(kUnknown));
}

TEST(Words, RefuseABrokenFile) {
  const TemporaryFolder folder;
  const std::string start = "<unk>\tcontrol\n<s>\tcontrol\n</s>\tcontrol\n";
  const auto refusal = [&](const std::string& text, const char* message) {
    write_text(folder / "vocabulary.txt", text);
    EXPECT_THAT([&] { load_tokenizer(folder.path()); },
                ThrowsMessage<ParseError>(HasSubstr(message)));
  };
  refusal("a\nb\n", "must begin with <unk>, <s> and </s>");
  refusal(start + "a\na\n", "line 5: each line must be a piece of its own");
  refusal(start + "a\n\nb\n", "line 5: each line must be a piece of its own");
  refusal(start + "a\nb\tcontrol\n",
          "line 5: only the first pieces may be marked as control");
}

TEST(Tokenizer, RefusesWhatIsNotUtf8AndNumbersOutside) {
  const std::vector<std::string> lines = {"a"};
  const auto tokenizer = make_word_tokenizer(lines);
  EXPECT_THAT([&] { tokenizer->encode("a \xFF"); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("the line must be UTF-8; it is not at byte 3")));
  EXPECT_THAT([&] { tokenizer->piece(4); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("pieces have numbers from 0 to 3; got 4")));
}

TEST(Tokenizer, NamesAFolderWithoutOne) {
  const TemporaryFolder folder;
  EXPECT_THAT([&] { load_tokenizer(folder.path()); },
              ThrowsMessage<IoError>(
                  HasSubstr("has no tokenizer: no tokenizer.json, ")));
}

// Sentences of words made of a few syllables.
std::vector<std::string> some_text() {
  Random random(4);
  const char* syllables[] = {"ka", "lo", "mi", "tus", "ren", "ba", "\xC3\xA4l"};
  std::vector<std::string> lines;
  for (int i = 0; i < 400; ++i) {
    std::string line;
    for (std::int64_t w = 2 + random.below(6); w > 0; --w) {
      if (!line.empty()) line += ' ';
      for (std::int64_t s = 1 + random.below(3); s > 0; --s) {
        line += syllables[random.below(7)];
      }
    }
    lines.push_back(line + " .");
  }
  return lines;
}

class SentencePieces : public ::testing::TestWithParam<PieceModel> {
 protected:
  void SetUp() override {
    if (!sentencepiece_available()) GTEST_SKIP() << "built without it";
  }
};
INSTANTIATE_TEST_SUITE_P(Models, SentencePieces,
                         ::testing::Values(PieceModel::kUnigram,
                                           PieceModel::kBpe),
                         [](const auto& instance) {
                           return instance.param == PieceModel::kBpe
                                      ? "Bpe"
                                      : "Unigram";
                         });

TEST_P(SentencePieces, GiveBackTheTextThatTheyCut) {
  const auto lines = some_text();
  const auto tokenizer = train_sentencepiece(
      lines, {.model = GetParam(), .size = 60, .coverage = 1, .tags = {}});
  EXPECT_LE(tokenizer->size(), 60);
  for (const std::string& line : lines) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(line)), line);
  }
  // Full-width forms stay what they are.
  EXPECT_THAT(tokenizer->encode(""), IsEmpty());
}

TEST_P(SentencePieces, AreTheSameEveryTimeAndComeBackFromTheirFile) {
  const TemporaryFolder folder;
  const auto lines = some_text();
  const SentencePieceOptions options{
      .model = GetParam(), .size = 60, .coverage = 1, .tags = {"<2a>", "<2b>"}};
  train_sentencepiece(lines, options)->save(folder.path());
  const std::string first = read_text(folder / "tokenizer.model");
  train_sentencepiece(lines, options)->save(folder.path());
  EXPECT_EQ(read_text(folder / "tokenizer.model"), first);
  const auto tokenizer = load_tokenizer(folder.path());
  const std::int32_t tag = tokenizer->id_of("<2a>");
  EXPECT_NE(tag, kUnknown);
  // What looks like a tag in a text is text.
  EXPECT_THAT(tokenizer->encode("<2a>"), ::testing::Not(ElementsAre(tag)));
  const std::vector<std::int32_t> ids = {tag, kEnd};
  EXPECT_EQ(tokenizer->decode(ids), "");
}

TEST_P(SentencePieces, RefuseTooManyPiecesForTooLittleText) {
  const std::vector<std::string> lines = {"a b"};
  if (GetParam() == PieceModel::kBpe) {
    EXPECT_THAT(
        [&] {
          train_sentencepiece(lines,
                              {.model = GetParam(), .size = 3, .tags = {}});
        },
        ThrowsMessage<InvalidArgument>(
            HasSubstr("a vocabulary must have more than 3 pieces; got 3")));
  }
  EXPECT_THAT(
      [&] {
        train_sentencepiece(std::vector<std::string>{},
                            {.model = GetParam(), .size = 50, .tags = {}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr(
          "train_sentencepiece: there must be a line that is not blank; 0 "
          "came")));
  EXPECT_THAT(
      [&] {
        train_sentencepiece(
            lines,
            {.model = GetParam(), .size = 50, .coverage = 0.97, .tags = {}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr(
          "train_sentencepiece: the coverage must be in [0.98, 1]; got "
          "0.97")));
}

TEST_P(SentencePieces, AreLearntFromLinesOfAFewBytes) {
  const std::vector<std::string> lines = {"a b", "b a", "a a b"};
  const auto tokenizer = train_sentencepiece(
      lines, {.model = GetParam(), .size = 10, .coverage = 1, .tags = {}});
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("b a b")), "b a b");
}

TEST_P(SentencePieces, ReplaceATokenizerOfWordsAndTheOtherWayRound) {
  const TemporaryFolder folder;
  const auto lines = some_text();
  const auto words = make_word_tokenizer(lines, {.min_count = 1, .tags = {}});
  const auto pieces = train_sentencepiece(
      lines, {.model = GetParam(), .size = 60, .coverage = 1, .tags = {}});
  pieces->save(folder.path());
  words->save(folder.path());
  EXPECT_EQ(load_tokenizer(folder.path())->size(), words->size());
  pieces->save(folder.path());
  EXPECT_EQ(load_tokenizer(folder.path())->size(), pieces->size());
}

TEST(SentencePiece, NamesAFileThatIsNoModel) {
  if (!sentencepiece_available()) GTEST_SKIP() << "built without it";
  const TemporaryFolder folder;
  write_text(folder / "tokenizer.model", "not a model");
  EXPECT_THAT([&] { load_tokenizer(folder.path()); },
              ThrowsMessage<ParseError>(HasSubstr(
                  "tokenizer.model': this is no model of SentencePiece")));
  std::filesystem::remove(folder / "tokenizer.model");
  std::filesystem::create_directory(folder / "tokenizer.model");
  EXPECT_THAT([&] { load_tokenizer(folder.path()); },
              ThrowsMessage<IoError>(
                  AllOf(HasSubstr("load_tokenizer: cannot read '"),
                        HasSubstr("tokenizer.model': it is a folder"))));
}

}  // namespace
}  // namespace regard::text
