// SPDX-License-Identifier: Apache-2.0
// Tokenizers that are made from the texts to learn from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/files.h"
#include "regard/text/tokenizer.h"

namespace regard::text {
namespace {

using regard::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

const std::vector<std::string> kTexts = {"Good, good food!", "Bad food.",
                                         "\u4F60\u597D"};

std::vector<std::string> pieces(const Tokenizer& tokenizer,
                                const std::string& text) {
  std::vector<std::string> found;
  for (const std::int32_t id : tokenizer.encode(text)) {
    found.push_back(tokenizer.piece(id));
  }
  return found;
}

TEST(RunningWords, AreLowerCaseAndApartFromSigns) {
  const auto tokenizer = make_running_word_tokenizer(kTexts);
  EXPECT_THAT(pieces(*tokenizer, "FOOD good.Worse \u597D\u4F60"),
              ElementsAre("food", "good", ".", "<unk>", "\u597D", "\u4F60"));
  // The most frequent first, after the special ones.
  EXPECT_THAT((std::vector{tokenizer->piece(3), tokenizer->piece(4)}),
              ElementsAre("food", "good"));
}

TEST(RunningWords, KeepCapitalsAndLeaveOutRareWordsWhereAsked) {
  const auto cased = make_running_word_tokenizer(kTexts, {.lowercase = false});
  EXPECT_THAT(pieces(*cased, "Good good GOOD"),
              ElementsAre("Good", "good", "<unk>"));
  const auto frequent = make_running_word_tokenizer(kTexts, {.min_count = 2});
  EXPECT_EQ(frequent->size(), 5);
  const auto small = make_running_word_tokenizer(kTexts, {.size = 4});
  EXPECT_THAT(pieces(*small, "good food"), ElementsAre("<unk>", "food"));
}

TEST(RunningWords, ATextCannotSpellASpecialPiece) {
  const auto tokenizer = make_running_word_tokenizer(kTexts);
  const EncodeOptions plain = {.add_special_tokens = false,
                               .find_special_tokens = false};
  for (const std::int32_t id : tokenizer->encode("<s> food </s>", plain).ids) {
    EXPECT_NE(id, kBegin);
    EXPECT_NE(id, kEnd);
  }
}

TEST(Bytes, AreEachAPiece) {
  const auto tokenizer = make_byte_tokenizer();
  EXPECT_EQ(tokenizer->size(), 259);
  const std::string text = "a \u4F60\n!";
  const std::vector<std::int32_t> ids = tokenizer->encode(text);
  ASSERT_EQ(ids.size(), text.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(ids[i], 3 + static_cast<unsigned char>(text[i]));
  }
  EXPECT_EQ(tokenizer->decode(ids), text);
}

TEST(OwnTokenizers, ComeBackFromTheirFileAndReplaceOneAnother) {
  const TemporaryFolder folder;
  make_word_tokenizer(kTexts)->save(folder.path());
  const auto words = make_running_word_tokenizer(kTexts);
  words->save(folder.path());
  EXPECT_THAT(folder.files(), UnorderedElementsAre("tokenizer.json"));
  const auto loaded = load_tokenizer(folder.path());
  EXPECT_EQ(loaded->size(), words->size());
  EXPECT_EQ(loaded->encode("Good soup, bad food."),
            words->encode("Good soup, bad food."));
  loaded->save(folder.path());  // where it is already
  make_byte_tokenizer()->save(folder.path());
  EXPECT_EQ(load_tokenizer(folder.path())->size(), 259);
  train_sentencepiece(kTexts, {.size = 30})->save(folder.path());
  EXPECT_THAT(folder.files(), UnorderedElementsAre("tokenizer.model"));
}

}  // namespace
}  // namespace regard::text
