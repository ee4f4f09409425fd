// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "io/files.h"
#include "regard/core/error.h"
#include "regard/core/random.h"
#include "support/model_files.h"

namespace regard::tasks {
namespace {

using regard::testing::text_of;
using ::testing::StartsWith;

// The tokens that may be drawn, and how likely each is, by the definition.
std::map<std::int32_t, double> allowed(const std::vector<float>& scores,
                                       const Sampling& s) {
  std::vector<std::pair<double, std::int32_t>> by_probability;
  double total = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double p = std::exp(static_cast<double>(scores[i]) / s.temperature);
    by_probability.push_back({-p, static_cast<std::int32_t>(i)});
  }
  std::sort(by_probability.begin(), by_probability.end());
  if (s.top_k > 0) {
    by_probability.resize(
        std::min(by_probability.size(), static_cast<std::size_t>(s.top_k)));
  }
  for (const auto& [minus_p, token] : by_probability) total -= minus_p;
  std::map<std::int32_t, double> kept;
  double sum = 0;
  for (const auto& [minus_p, token] : by_probability) {
    if (s.top_p < 1 && sum >= static_cast<double>(s.top_p) * total) break;
    kept[token] = -minus_p;
    sum -= minus_p;
  }
  for (auto& [token, p] : kept) p /= sum;
  return kept;
}

TEST(SampleToken, DrawsEachTokenAsOftenAsItIsLikely) {
  Random random(2);
  std::vector<float> scores;
  for (int i = 0; i < 12; ++i) scores.push_back(random.normal());
  scores[7] = scores[3];  // equals
  for (const Sampling& sampling :
       {Sampling{.temperature = 1.0f}, Sampling{.temperature = 0.5f},
        Sampling{.temperature = 2.0f, .top_k = 4},
        Sampling{.temperature = 1.0f, .top_p = 0.6f},
        Sampling{.temperature = 1.5f, .top_k = 6, .top_p = 0.5f},
        Sampling{.temperature = 1.0f, .top_k = 1},
        Sampling{.temperature = 1.0f, .top_p = 1e-6f}}) {
    const auto expected = allowed(scores, sampling);
    std::map<std::int32_t, int> drawn;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) ++drawn[sample_token(scores, sampling, i)];
    for (const auto& [token, count] : drawn) {
      ASSERT_TRUE(expected.contains(token)) << token;
    }
    for (const auto& [token, p] : expected) {
      // Five standard deviations.
      const double slack = 5 * std::sqrt(p * (1 - p) / kDraws) + 1e-9;
      EXPECT_NEAR(drawn[token] / static_cast<double>(kDraws), p, slack);
    }
  }
}

TEST(SampleToken, WithoutTemperatureTakesTheFirstOfTheBest) {
  const std::vector<float> scores = {1, 5, 2, 5, -3};
  for (std::int64_t position = 0; position < 20; ++position) {
    EXPECT_EQ(sample_token(scores, {.seed = 9}, position), 1);
  }
}

TEST(SampleToken, IsAFunctionOfSeedAndPosition) {
  const std::vector<float> scores(50, 0.0f);
  const auto draw = [&](std::uint64_t seed, std::int64_t position) {
    return sample_token(scores, {.temperature = 1, .seed = seed}, position);
  };
  std::set<std::int32_t> by_position, by_seed;
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(draw(1, i), draw(1, i));
    by_position.insert(draw(1, i));
    by_seed.insert(draw(static_cast<std::uint64_t>(i), 1));
  }
  EXPECT_GT(by_position.size(), 10u);
  EXPECT_GT(by_seed.size(), 10u);
}

TEST(SampleToken, SaysWhatItRefuses) {
  const std::vector<float> scores = {1, 2};
  const auto refused = [&](const Sampling& sampling) {
    return text_of<InvalidArgument>([&] { sample_token(scores, sampling, 0); });
  };
  EXPECT_EQ(refused({.temperature = -1}),
            "sample_token: temperature must be finite and not negative; it is "
            "-1");
  EXPECT_EQ(refused({.top_k = -2}),
            "sample_token: top_k must not be negative; it is -2");
  EXPECT_EQ(refused({.top_p = 0}),
            "sample_token: top_p must be above 0 and at most 1; it is 0");
  EXPECT_EQ(refused({.top_p = 1.5f}),
            "sample_token: top_p must be above 0 and at most 1; it is 1.5");
  const std::vector<float> broken = {1, std::numeric_limits<float>::infinity()};
  EXPECT_EQ(text_of<InvalidArgument>([&] { sample_token(broken, {}, 0); }),
            "sample_token: scores must be finite; there is inf (are the "
            "model's weights broken?)");
  EXPECT_EQ(text_of<InvalidArgument>([&] { sample_token({}, {}, 0); }),
            "sample_token: there are no scores");
}

class Stories : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(REGARD_SOURCE_DIR) /
              "../shared/models/stories260K";
    if (!std::filesystem::exists(folder_ / "stories260K.bin")) {
      GTEST_SKIP() << folder_ << " is not there";
    }
  }

  LoadedModel from_bin() const {
    return load_language_model(folder_ / "stories260K.bin",
                               folder_ / "tok512.bin");
  }
  LoadedModel from_gguf() const {
    return load_language_model(folder_ / "stories260K.f32.gguf");
  }
  static std::vector<std::string> texts(const LoadedModel& loaded,
                                        const std::vector<std::string>& prompts,
                                        const GenerateOptions& options) {
    std::vector<std::string> streamed(prompts.size());
    const auto written =
        generate(loaded, prompts, options,
                 [&](std::int64_t text, std::string_view more) {
                   streamed[static_cast<std::size_t>(text)] += more;
                 });
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(written[i].text, streamed[i]);
      EXPECT_LE(written[i].tokens, options.max_tokens);
    }
    return streamed;
  }

  std::filesystem::path folder_;
};

TEST_F(Stories, AreThoseThatTheModelsMakerShows) {
  const std::string expected =
      regard::testing::read_text(folder_ / "expected_greedy_n200.txt");
  const GenerateOptions options{.max_tokens = 200};
  EXPECT_EQ(texts(from_bin(), {""}, options)[0] + "\n", expected);
  EXPECT_EQ(texts(from_gguf(), {""}, options)[0] + "\n", expected);
}

TEST_F(Stories, AreTheSameAloneInABatchPagedAndOnAnyThreads) {
  const LoadedModel loaded = from_bin();
  const std::vector<std::string> prompts = {
      "", "Once upon a time", "The cat",
      "Lily and Tom went to the park. They saw a big dog. The dog was"};
  for (const float temperature : {0.0f, 0.9f}) {
    GenerateOptions options{.max_tokens = 60};
    options.sampling = {
        .temperature = temperature, .top_k = 40, .top_p = 0.9f, .seed = 11};
    std::vector<std::string> alone;
    for (const std::string& prompt : prompts) {
      alone.push_back(texts(loaded, {prompt}, options)[0]);
    }
    for (const int threads : {1, 2, 3}) {
      for (const KVCacheKind cache :
           {KVCacheKind::kContiguous, KVCacheKind::kPaged}) {
        options.cache = cache;
        options.threads.count = threads;
        EXPECT_EQ(texts(loaded, prompts, options), alone);
      }
    }
    options.sampling.seed = 12;
    if (temperature > 0) {
      EXPECT_NE(texts(loaded, prompts, options), alone);
    }
  }
}

TEST_F(Stories, EndWhereTheModelOrItsContextEnds) {
  const LoadedModel loaded = from_bin();
  GenerateOptions options{.max_tokens = 100000};
  options.sampling = {.temperature = 1.0f, .top_p = 0.9f, .seed = 3};
  const std::vector<std::string> prompts = {"", "One day", "The", "A dog"};
  const auto written =
      generate(loaded, prompts, options, [](std::int64_t, std::string_view) {});
  for (const Continuation& c : written) {
    EXPECT_GT(c.tokens, 0);
    // The last one is written and not read.
    EXPECT_LE(c.tokens + c.prompt_tokens, 513);
  }
  options.max_tokens = 0;
  EXPECT_EQ(texts(loaded, {"One day"}, options)[0], "");
  EXPECT_TRUE(texts(loaded, {}, options).empty());
}

TEST_F(Stories, RefuseAPromptThatIsTooLong) {
  const LoadedModel loaded = from_bin();
  const std::vector<std::string> prompts = {"a", std::string(3000, 'x')};
  EXPECT_THAT(text_of<InvalidArgument>([&] {
                generate(loaded, prompts, {},
                         [](std::int64_t, std::string_view) {});
              }),
              StartsWith("generate: the model reads at most 512 tokens; prompt "
                         "1 has "));
  EXPECT_EQ(text_of<InvalidArgument>([&] {
              generate(loaded, prompts, {.max_tokens = -1},
                       [](std::int64_t, std::string_view) {});
            }),
            "generate: max_tokens must not be negative; it is -1");
}

}  // namespace
}  // namespace regard::tasks
