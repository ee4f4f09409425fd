// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/translate_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "regard/nn/transformer.h"
#include "support/refusal.h"
#include "tasks/repetition.h"

namespace regard::tasks {
namespace {

using test::refusal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> sentences(const std::string& line) {
  std::vector<std::string> found;
  for (const text::ByteRange& range : find_sentences(line)) {
    found.push_back(
        line.substr(static_cast<std::size_t>(range.begin),
                    static_cast<std::size_t>(range.end - range.begin)));
  }
  return found;
}

TEST(Sentences, EndBehindStops) {
  EXPECT_THAT(sentences("I am here. Where are you?  Come! "),
              ElementsAre("I am here.", "Where are you?", "Come!"));
  EXPECT_THAT(sentences("He said \"Go.\" Then he left"),
              ElementsAre("He said \"Go.\"", "Then he left"));
  EXPECT_THAT(sentences("Wait... What?!"), ElementsAre("Wait...", "What?!"));
  // Chinese has no blanks.
  EXPECT_THAT(sentences("\xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82\xE4\xBD\xA0\xE5"
                        "\x91\xA2\xEF\xBC\x9F"),
              ElementsAre("\xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82",
                          "\xE4\xBD\xA0\xE5\x91\xA2\xEF\xBC\x9F"));
  EXPECT_THAT(sentences(""), IsEmpty());
  EXPECT_THAT(sentences(" \t "), IsEmpty());
}

TEST(Sentences, DoNotEndWithinNumbersNamesAndAbbreviations) {
  for (const char* whole :
       {"It costs 3.50 dollars.", "Dr. Smith met Mr. Jones.",
        "J. R. Tolkien wrote it.", "We meet at 5 p.m. Monday.",
        "see https://a.org/b.html now", "a man . two dogs .",
        "He said \"why?\" and left."}) {
    EXPECT_THAT(sentences(whole), ElementsAre(whole));
  }
}

// A model that was never trained translates something, the same every time.
const Translator& translator() {
  static const Translator one = [] {
    std::string all;
    for (char c = 'a'; c <= 'z'; ++c) all += std::string(1, c) + " ";
    auto tokenizer = text::make_word_tokenizer(
        std::vector<std::string>{all + "Xa. Xb. D, E F 2019 3.5"});
    TranslatorConfig config;
    nn::TransformerConfig& m = config.model;
    m.source_vocab = m.target_vocab = tokenizer->size();
    m.model_dim = 16;
    m.heads = 2;
    m.encoder_layers = m.decoder_layers = 1;
    m.feed_forward_dim = 16;
    m.shared_embeddings = true;
    m.positions = nn::Positions::kLearned;
    m.max_length = 12;
    nn::Transformer model(m, 3);
    return Translator(config, std::move(tokenizer), model.parameters());
  }();
  return one;
}

std::string whole(const std::string& sentence) {
  return translator().translate(std::vector<std::string>{sentence})[0][0].text;
}

std::string translated(const std::string& text) {
  return translate_texts(translator(), std::vector<std::string>{text})[0].text;
}

TEST(TranslateTexts, TranslatesSentencesAndJoinsThem) {
  ASSERT_NE(translated("a b Xa."), "");
  EXPECT_EQ(translated("a b Xa. Xb. E F"), translated("a b Xa.") + " " +
                                               translated("Xb.") + " " +
                                               translated("E F"));
}

TEST(TranslateTexts, SaysNothingOverAndOver) {
  int lost = 0, kept = 0;
  for (char c = 'a'; c <= 'z'; ++c) {
    const std::string sentence = std::string(1, c) + " Xa.";
    const std::string before = whole(sentence), after = translated(sentence);
    EXPECT_FALSE(has_repetition(after)) << after;
    if (has_repetition(before)) {
      ++lost;
    } else {
      ++kept;
      EXPECT_EQ(after, before);
    }
  }
  EXPECT_GT(lost, 0);
  EXPECT_GT(kept, 0);
  // Nor where the number was lost, and another one stood in for it.
  for (char c = 'a'; c <= 'z'; ++c) {
    for (const std::string number : {"2019", "3.5"}) {
      const std::string after = translated(std::string(1, c) + " " + number);
      EXPECT_FALSE(has_repetition(after)) << after;
      EXPECT_THAT(after, HasSubstr(number));
    }
  }
  // It is said again where the sentence says so itself.
  const std::string again = "a a a a a";
  EXPECT_EQ(translated(again), whole(again));
}

TEST(TranslateTexts, KeepsLinesAndParagraphs) {
  EXPECT_EQ(translated("a Xa. Xb.\nc\n\n\nd e\n"),
            translated("a Xa.") + " " + translated("Xb.") + "\n" +
                translated("c") + "\n\n\n" + translated("d e") + "\n");
  EXPECT_EQ(translated(""), "");
  EXPECT_EQ(translated("\n\n"), "\n\n");
}

TEST(TranslateTexts, ALongSentenceIsCutWhereAClauseEnds) {
  const std::string first = "a b c d e D,", second = "f g h i j k";
  EXPECT_THAT(refusal([&] { whole(first + " " + second); }),
              HasSubstr("at most 12 pieces"));
  EXPECT_EQ(translated(first + " " + second),
            translated(first) + " " + translated(second));
  // And else where a word does.
  EXPECT_EQ(translated("a b c d e f g h i j k l"),
            translated("a b c d e f") + " " + translated("g h i j k l"));
}

// This model writes anything: only what is put back is certain to be there.
TEST(TranslateTexts, HasTheNumbersOfTheSource) {
  for (const char* number : {"2019", "3.5"}) {
    for (const std::string rest : {"", " a", " b c", " d e f g h i"}) {
      const std::string text = translated(number + rest);
      const std::size_t at = text.find(number);
      ASSERT_NE(at, std::string::npos) << text;
      EXPECT_EQ(text.find("www"), std::string::npos) << text;
    }
  }
}

TEST(TranslateTexts, RefusesWhatIsOfSingleSentences) {
  TranslateOptions options;
  options.align = true;
  EXPECT_THAT(refusal([&] {
                translate_texts(translator(), std::vector<std::string>{"a"},
                                options);
              }),
              HasSubstr("align"));
}

// The number of threads, batches and neighbours changes nothing.
TEST(TranslateTexts, GivesTheSameForAnyNumberOfThreads) {
  std::vector<std::string> lines;
  for (int i = 0; i < 60; ++i) {
    std::string line;
    for (int j = 0; j <= i % 9; ++j) {
      line += static_cast<char>('a' + (i * 7 + j * 5) % 26);
      line += ' ';
    }
    lines.push_back(i % 11 == 0   ? ""
                    : i % 13 == 0 ? line + "https://a.org"
                                  : line);
  }
  TranslateOptions options;
  options.nbest = 3;
  options.align = true;
  options.threads = {.count = 1};
  options.batch = 7;
  const auto expected = translator().translate(lines, options);
  for (const int threads : {2, 3}) {
    for (const std::int64_t batch : {1, 7, 32, 1000}) {
      options.threads = {.count = threads};
      options.batch = batch;
      const auto found = translator().translate(lines, options);
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_EQ(found[i].size(), expected[i].size()) << i;
        for (std::size_t n = 0; n < found[i].size(); ++n) {
          EXPECT_EQ(found[i][n].text, expected[i][n].text);
          EXPECT_EQ(found[i][n].score, expected[i][n].score);
          EXPECT_EQ(found[i][n].alignment, expected[i][n].alignment);
        }
      }
    }
  }
}

}  // namespace
}  // namespace regard::tasks
