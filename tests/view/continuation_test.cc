// SPDX-License-Identifier: Apache-2.0
#include "regard/view/continuation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/core/random.h"
#include "support/model_files.h"
#include "support/reference_language_model.h"

namespace regard::view {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A random model of nine pieces, in two files.
class Continuation : public ::testing::Test {
 protected:
  void SetUp() override {
    const test::Llama2cSizes sizes{.dim = 8,
                                   .hidden = 12,
                                   .layers = 2,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .vocab = 9,
                                   .context = 12};
    Random random(3);
    testing::write_text(folder_ / "model.bin", test::llama2c_file(sizes, [&] {
                          return 0.4f * random.normal();
                        }));
    testing::write_text(folder_ / "pieces.bin",
                        test::llama2c_pieces({{"<unk>", 0.0f},
                                              {"\n<s>\n", 0.0f},
                                              {"\n</s>\n", 0.0f},
                                              {" ", -1.0f},
                                              {"a", -2.0f},
                                              {"b", -3.0f},
                                              {" a", 3.0f},
                                              {" b", 2.0f},
                                              {"ab", 1.0f}}));
  }
  tasks::LoadedModel load() const {
    return tasks::load_language_model(folder_ / "model.bin",
                                      folder_ / "pieces.bin");
  }
  testing::TemporaryFolder folder_;
};

TEST_F(Continuation, ShowsThePiecesAsTheTextHasThem) {
  const tasks::LoadedModel loaded = load();
  const Trace trace = trace_continuation(loaded, "a b ab");
  ASSERT_EQ(trace.axes().size(), 1u);
  EXPECT_THAT(trace.axes()[0].tokens,
              ElementsAre("<s>", "a", "\u2581b", "\u2581a", "b"));
  EXPECT_EQ(trace.source, "a b ab");
  EXPECT_EQ(trace.target, "");
}

TEST_F(Continuation, HasTheWeightsOfTheDefinition) {
  const tasks::LoadedModel loaded = load();
  const Trace trace = trace_continuation(loaded, "a b ab");
  const Llama2cFile file = Llama2cFile::open(folder_ / "model.bin");
  const test::ReferenceLanguageModel<double> exact(loaded.model.config(),
                                                   file.parameters());
  std::vector<std::vector<double>> rows;
  exact.logits({1, 6, 7, 6, 5}, &rows);
  const Section& section = trace.section(0);
  EXPECT_EQ(section.config().name, "decoder");
  EXPECT_TRUE(section.is_causal());
  EXPECT_TRUE(section.has_vectors());
  ASSERT_EQ(section.layers(), 2);
  std::size_t row = 0;
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    for (std::size_t t = 0; t < 5; ++t) {
      for (std::int64_t head = 0; head < 4; ++head, ++row) {
        for (std::size_t s = 0; s <= t; ++s) {
          EXPECT_NEAR(section.codes(layer, head)[t * 5 + s] / 65535.0,
                      rows[row][s], 2e-5);
        }
      }
    }
  }
}

TEST_F(Continuation, GoesOnWithTheLikeliest) {
  const tasks::LoadedModel loaded = load();
  const Trace trace = trace_continuation(loaded, "a b ab", {.max_tokens = 3});
  const Llama2cFile file = Llama2cFile::open(folder_ / "model.bin");
  const test::ReferenceLanguageModel<double> exact(loaded.model.config(),
                                                   file.parameters());
  std::vector<std::int32_t> tokens = {1, 6, 7, 6, 5};
  for (int i = 0; i < 3; ++i) {
    const auto scores = exact.logits(tokens);
    const auto best = static_cast<std::int32_t>(
        std::max_element(scores.begin(), scores.end()) - scores.begin());
    if (best == 1 || best == 2) break;  // the text ends
    tokens.push_back(best);
  }
  EXPECT_EQ(trace.axes()[0].tokens.size(), tokens.size());
  EXPECT_EQ(trace.section(0).rows(), std::ssize(tokens));
}

TEST_F(Continuation, RefusesWhatTheModelCannotRead) {
  const tasks::LoadedModel loaded = load();
  EXPECT_THAT([&] { trace_continuation(loaded, "a b ab", {.max_tokens = 8}); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "the model reads at most 12 tokens; the text has 5 and 8 "
                  "are to follow")));
  EXPECT_THAT([&] { trace_continuation(loaded, "a", {.max_tokens = -1}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("-1 are to follow")));
}

}  // namespace
}  // namespace regard::view
