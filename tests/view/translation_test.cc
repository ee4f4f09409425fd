// SPDX-License-Identifier: Apache-2.0
// What a translator is said to have looked at is what it looked at.
#include "regard/view/translation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/core/float16.h"
#include "support/reference_transformer.h"
#include "view/small_translator.h"

namespace regard::view {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kSentence = "the cat sees a dog";

std::vector<std::int32_t> ids_of(const text::Tokenizer& vocabulary,
                                 const std::vector<std::string>& pieces) {
  std::vector<std::int32_t> ids;
  for (const std::string& piece : pieces) {
    ids.push_back(vocabulary.id_of(piece));
  }
  return ids;
}

void expect_near(const Section& section,
                 const std::vector<std::vector<test::Rows>>& truth) {
  // Half a step of 16 bits, and what float arithmetic loses.
  constexpr double kTolerance = 0.5 / 65535 + 2e-5;
  ASSERT_EQ(section.layers(), std::ssize(truth));
  for (std::int64_t layer = 0; layer < section.layers(); ++layer) {
    for (std::int64_t head = 0; head < section.config().heads; ++head) {
      const test::Rows& rows = truth[static_cast<std::size_t>(layer)]
                                    [static_cast<std::size_t>(head)];
      const auto codes = section.codes(layer, head);
      for (std::size_t i = 0; i < codes.size(); ++i) {
        const auto columns = static_cast<std::size_t>(section.columns());
        EXPECT_NEAR(codes[i] / 65535.0, rows[i / columns][i % columns],
                    kTolerance)
            << section.config().name << " layer " << layer << " head " << head
            << " element " << i;
      }
    }
  }
}

TEST(TranslationTrace, HasTheWeightsThatTheDefinitionGives) {
  test::SmallTranslator small;
  const Trace trace = trace_translation(*small.translator, kSentence);
  const auto source = ids_of(*small.vocabulary, trace.axes()[0].tokens);
  const auto read = ids_of(*small.vocabulary, trace.axes()[2].tokens);
  const test::ReferenceWeights truth =
      test::ReferenceTransformer(small.config.model, small.parameters)
          .run(source, read);
  ASSERT_EQ(trace.sections().size(), 3u);
  expect_near(trace.sections()[0], truth.encoder);
  expect_near(trace.sections()[1], truth.decoder);
  expect_near(trace.sections()[2], truth.cross);
  // A head that looks everywhere alike would prove little.
  double largest = 0;
  for (const double w : truth.cross[2][0][0]) largest = std::max(largest, w);
  EXPECT_GT(largest, 0.3);
}

// Softmax over the visible keys of scale * q k^T, from the halves that a trace
// keeps, is the weight that the definition gives.
void expect_made_of_vectors(const Section& section,
                            const std::vector<std::vector<test::Rows>>& truth) {
  ASSERT_TRUE(section.has_vectors());
  const std::int64_t dim = section.vector_dim();
  const auto half = [](std::uint16_t bits) {
    Float16 value;
    value.bits = bits;
    return static_cast<double>(static_cast<float>(value));
  };
  for (std::int64_t layer = 0; layer < section.layers(); ++layer) {
    for (std::int64_t head = 0; head < section.config().heads; ++head) {
      const auto all = section.vectors(layer, head);
      const auto keys =
          all.subspan(static_cast<std::size_t>(section.rows() * dim));
      for (std::int64_t q = 0; q < section.rows(); ++q) {
        const auto& row =
            truth[static_cast<std::size_t>(layer)]
                 [static_cast<std::size_t>(head)][static_cast<std::size_t>(q)];
        std::vector<double> weights;
        double sum = 0;
        const std::int64_t seen =
            section.is_causal() ? q + 1 : section.columns();
        for (std::int64_t k = 0; k < seen; ++k) {
          double score = 0;
          for (std::int64_t i = 0; i < dim; ++i) {
            score += half(all[static_cast<std::size_t>(q * dim + i)]) *
                     half(keys[static_cast<std::size_t>(k * dim + i)]);
          }
          weights.push_back(std::exp(score * section.vector_scale()));
          sum += weights.back();
        }
        for (std::size_t k = 0; k < weights.size(); ++k) {
          EXPECT_NEAR(weights[k] / sum, row[k], 0.02)
              << section.config().name << " layer " << layer << " head " << head
              << " query " << q << " key " << k;
        }
      }
    }
  }
}

TEST(TranslationTrace, HasTheQueriesAndKeysThatMakeTheWeights) {
  test::SmallTranslator small;
  const Trace trace = trace_translation(*small.translator, kSentence);
  const test::ReferenceWeights truth =
      test::ReferenceTransformer(small.config.model, small.parameters)
          .run(ids_of(*small.vocabulary, trace.axes()[0].tokens),
               ids_of(*small.vocabulary, trace.axes()[2].tokens));
  expect_made_of_vectors(trace.sections()[0], truth.encoder);
  expect_made_of_vectors(trace.sections()[1], truth.decoder);
  expect_made_of_vectors(trace.sections()[2], truth.cross);
}

TEST(ModelNote, IsReadFromItsFile) {
  const regard::testing::TemporaryFolder folder;
  EXPECT_TRUE(read_note(folder / "model").empty());
  std::filesystem::create_directory(folder / "model");
  const auto write = [&](const char* text) {
    std::ofstream(folder / "model" / "note.json") << text;
  };
  write(R"({"en": "good", "zh": "x"})");
  EXPECT_EQ(read_note(folder / "model"), (Note{{"en", "good"}, {"zh", "x"}}));
  for (const char* text : {"", "[1]", R"({"en": 1})"}) {
    write(text);
    EXPECT_THAT([&] { (void)read_note(folder / "model"); },
                ThrowsMessage<ParseError>(HasSubstr("note.json")));
  }
}

TEST(TranslationTrace, IsOfTheTranslationThatTranslateGives) {
  const test::SmallTranslator small;
  for (const std::int64_t beam : {1, 5}) {
    const tasks::TranslateOptions options{.beam = beam};
    const Trace trace =
        trace_translation(*small.translator, kSentence, options);
    const auto plain = small.translator->translate(
        std::vector<std::string>{kSentence}, options);
    EXPECT_EQ(trace.target, plain[0][0].text);
    EXPECT_FALSE(trace.target.empty());
    EXPECT_EQ(trace.source, kSentence);
  }
}

TEST(TranslationTrace, NamesWhatEachStepReadAndWrote) {
  const test::SmallTranslator small;
  const Trace trace = trace_translation(*small.translator, kSentence);
  ASSERT_EQ(trace.axes().size(), 3u);
  EXPECT_THAT(trace.axes()[0].tokens,
              ElementsAre("the", "cat", "sees", "a", "dog", "</s>"));
  const std::vector<std::string>& written = trace.axes()[1].tokens;
  std::vector<std::string> read = trace.axes()[2].tokens;
  EXPECT_EQ(trace.steps, std::ssize(written));
  ASSERT_EQ(read.front(), "<s>");
  read.erase(read.begin());
  EXPECT_TRUE(std::equal(read.begin(), read.end(), written.begin()));
  EXPECT_EQ(trace.sections()[1].config().queries, 1u);
  EXPECT_EQ(trace.sections()[1].config().keys, 2u);
  EXPECT_TRUE(trace.sections()[1].is_causal());
  EXPECT_FALSE(trace.sections()[0].is_causal());
  EXPECT_FALSE(trace.sections()[2].has_rollout());
}

// A translation that was cut off has no end; its last step wrote a piece.
TEST(TranslationTrace, EndsWhereTheTranslationWasCutOff) {
  const test::SmallTranslator small;
  const Trace trace = trace_translation(*small.translator, kSentence,
                                        {.beam = 1, .max_length = 2});
  const auto plain = small.translator->translate(
      std::vector<std::string>{kSentence}, {.beam = 1, .max_length = 2});
  EXPECT_EQ(trace.target, plain[0][0].text);
  EXPECT_LE(trace.steps, 2);
}

TEST(TranslationTrace, KnowsTheLanguageByItsTag) {
  const test::SmallTranslator small({"en", "de", true});
  const Trace trace =
      trace_translation(*small.translator, "the cat", {.to = "de"});
  EXPECT_THAT(trace.axes()[0].tokens,
              ElementsAre("<2de>", "the", "cat", "</s>"));
  EXPECT_THAT([&] { trace_translation(*small.translator, "the cat"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("say which: got ''")));
}

TEST(TranslationTrace, RefusesABlankSentence) {
  const test::SmallTranslator small;
  EXPECT_THAT([&] { trace_translation(*small.translator, "  "); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "Translator::trace: the sentence must have a word")));
}

TEST(TranslationTrace, RefusesASentenceOfWhichNothingIsRead) {
  const test::SmallTranslator small;
  EXPECT_THAT([&] { trace_translation(*small.translator, "\U0001F600"); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "view::trace_translation: no character of the sentence is "
                  "in the model's vocabulary")));
}

TEST(LanguageTo, IsToldByTheScriptWhereOneLanguageIsChinese) {
  const tasks::Languages both{"en", "zh", true};
  EXPECT_EQ(tasks::language_to(both, "a cat"), "zh");
  EXPECT_EQ(tasks::language_to(both, "\u732b cat"), "en");
  EXPECT_EQ(tasks::language_to({"zh", "en", true}, "\u732b"), "en");
  EXPECT_EQ(tasks::language_to({"en", "zh", false}, "\u732b"), "");
  EXPECT_EQ(tasks::language_to({"en", "de", true}, "a cat"), "");
}

}  // namespace
}  // namespace regard::view
