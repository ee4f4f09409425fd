// SPDX-License-Identifier: Apache-2.0
#include "regard/view/encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "support/encoder_folder.h"

namespace regard::view {
namespace {

using ::testing::ElementsAre;

class Encoding : public ::testing::Test {
 protected:
  void SetUp() override { testing::write_encoder_folder(folder_.path()); }
  testing::TemporaryFolder folder_;
};

TEST_F(Encoding, MergesThePiecesOfAWord) {
  const auto encoder = tasks::TextEncoder::load(folder_.path());
  const Trace trace = trace_encoding(encoder, "The cats sat.");
  ASSERT_EQ(trace.axes().size(), 1u);
  EXPECT_THAT(trace.axes()[0].tokens,
              ElementsAre("[CLS]", "The", "cats", "sat", ".", "[SEP]"));
  const tasks::TextTrace seen = encoder.trace("The cats sat.");
  ASSERT_EQ(seen.pieces.size(), 7u);
  // Word 2 is pieces 2 and 3.
  const std::vector<std::vector<std::int64_t>> pieces = {{0}, {1}, {2, 3},
                                                         {4}, {5}, {6}};
  const auto weights = seen.weights.view<float, 4>();
  const Section& section = trace.section(0);
  EXPECT_EQ(section.config().name, "encoder");
  EXPECT_TRUE(section.config().self);
  ASSERT_EQ(section.layers(), 2);
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    for (std::int64_t head = 0; head < 2; ++head) {
      const auto codes = section.codes(layer, head);
      for (std::size_t q = 0; q < 6; ++q) {
        for (std::size_t k = 0; k < 6; ++k) {
          double sum = 0;
          for (const std::int64_t i : pieces[q]) {
            for (const std::int64_t j : pieces[k]) {
              sum += weights.at(layer, head, i)[j];
            }
          }
          sum /= static_cast<double>(pieces[q].size());
          EXPECT_NEAR(codes[q * 6 + k] / 65535.0, sum, 1e-5);
        }
      }
    }
  }
  EXPECT_FALSE(section.has_vectors());
}

TEST_F(Encoding, KeepsQueriesAndKeysWhereEveryPieceIsAWord) {
  const auto encoder = tasks::TextEncoder::load(folder_.path());
  const Trace trace = trace_encoding(encoder, "the cat");
  EXPECT_TRUE(trace.section(0).has_vectors());
  EXPECT_EQ(trace.section(0).vector_dim(), 4);
  EXPECT_EQ(trace.section(0).vector_scale(), 0.5);
  EXPECT_THAT(trace_encoding(encoder, "").axes()[0].tokens,
              ElementsAre("[CLS]", "[SEP]"));
}

TEST(MiniLM, LooksFromItToTheAnimalThatWasTired) {
  const char* const home = std::getenv("HOME");
  const std::filesystem::path folder =
      std::filesystem::path(home == nullptr ? "/" : home) /
      ".cache/regard-models/all-MiniLM-L6-v2";
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << folder << " is not there";
  }
  const auto encoder = tasks::TextEncoder::load(folder);
  // Seen with transformers.
  struct Case {
    const char* word;
    std::int64_t layer, head;
    double weight;
  };
  for (const Case& c :
       {Case{"tired", 3, 1, 0.68}, Case{"wide", 3, 1, 0.28},
        Case{"tired", 5, 11, 0.67}, Case{"wide", 5, 11, 0.56}}) {
    const Trace trace = trace_encoding(
        encoder,
        std::string("The animal didn't cross the street because it was too ") +
            c.word + ".");
    const auto& tokens = trace.axes()[0].tokens;
    const auto place = [&](const char* word) {
      return std::find(tokens.begin(), tokens.end(), word) - tokens.begin();
    };
    const Section& section = trace.section(0);
    const auto at = static_cast<std::size_t>(place("it") * section.columns() +
                                             place("animal"));
    EXPECT_NEAR(section.codes(c.layer, c.head)[at] / 65535.0, c.weight, 0.006)
        << c.word << ", layer " << c.layer << ", head " << c.head;
  }
}

}  // namespace
}  // namespace regard::view
