// SPDX-License-Identifier: Apache-2.0
#include "tasks/beam_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>

#include "regard/core/random.h"

namespace regard::tasks {
namespace {

constexpr std::int32_t kVocab = 7;

// A model of four tokens beside the special ones, whose probabilities are drawn
// from everything that was said: a search cannot do well by luck.
struct TableModel {
  std::uint64_t seed = 1;
  std::vector<double> log_probabilities(
      std::int64_t source, const std::vector<std::int32_t>& said) const {
    std::uint64_t key = seed * 1000 + static_cast<std::uint64_t>(source);
    for (const std::int32_t token : said) {
      key = key * 31 + static_cast<std::uint64_t>(token) + 1;
    }
    Random random(key);
    std::vector<double> scores(kVocab);
    double total = 0;
    for (double& score : scores) {
      score = 2.0 * random.normal();
      total += std::exp(score);
    }
    for (double& score : scores) score -= std::log(total);
    return scores;
  }
};

// The functions of nn::DecoderState over it.
class FakeState {
 public:
  FakeState(TableModel model, std::int64_t sources) : model_(model) {
    for (std::int64_t s = 0; s < sources; ++s) rows_.push_back({s, {}});
  }
  std::int64_t hypotheses() const {
    return static_cast<std::int64_t>(rows_.size());
  }
  std::int64_t source_length(std::int64_t source) const { return 2 + source; }
  void step(std::span<const std::int32_t> tokens) {
    ASSERT_EQ(tokens.size(), rows_.size());
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      rows_[i].second.push_back(tokens[i]);
    }
  }
  void best(std::int64_t k, TensorView<std::int32_t, 2> tokens,
            TensorView<float, 2> scores) const {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const auto all = model_.log_probabilities(rows_[i].first, said(i));
      std::vector<std::int32_t> order(kVocab);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
        return all[static_cast<std::size_t>(a)] >
               all[static_cast<std::size_t>(b)];
      });
      for (std::int64_t j = 0; j < k; ++j) {
        const std::int32_t token = order[static_cast<std::size_t>(j)];
        tokens(static_cast<std::int64_t>(i), j) = token;
        scores(static_cast<std::int64_t>(i), j) =
            static_cast<float>(all[static_cast<std::size_t>(token)]);
      }
    }
  }
  void reorder(std::span<const std::int64_t> parents) {
    std::vector<Row> next;
    for (const std::int64_t parent : parents) {
      next.push_back(rows_[static_cast<std::size_t>(parent)]);
    }
    rows_ = std::move(next);
  }
  // Each row tells its length, so that a test can see whose it is.
  void cross_attention(std::int64_t, TensorView<float, 2> weights) const {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      weights(static_cast<std::int64_t>(i), std::int64_t{0}) =
          static_cast<float>(rows_[i].second.size());
    }
  }

 private:
  using Row = std::pair<std::int64_t, std::vector<std::int32_t>>;
  std::vector<std::int32_t> said(std::size_t row) const {
    return {rows_[row].second.begin() + 1, rows_[row].second.end()};
  }
  TableModel model_;
  std::vector<Row> rows_;
};

using Sentence = std::vector<std::int32_t>;

// Every sentence of at most `most` tokens and its score.
void all_sentences(const TableModel& model, std::int64_t source, int most,
                   double penalty, const Sentence& said, double score,
                   std::map<Sentence, double>& found) {
  const auto next = model.log_probabilities(source, said);
  const auto length = static_cast<double>(said.size() + 1);
  found[said] = (score + next[text::kEnd]) / std::pow(length, penalty);
  if (static_cast<int>(said.size()) == most) return;
  for (std::int32_t token = 1; token < kVocab; ++token) {
    if (token == text::kEnd) continue;
    Sentence longer = said;
    longer.push_back(token);
    all_sentences(model, source, most, penalty, longer,
                  score + next[static_cast<std::size_t>(token)], found);
  }
}

SearchOptions options_of(std::int64_t beam, double penalty, std::int64_t most) {
  SearchOptions options;
  options.vocab = kVocab;
  options.beam = beam;
  options.length_penalty = penalty;
  options.max_length = most;
  return options;
}

TEST(BeamSearch, ScoresAreThoseOfTheSentencesThatItReturns) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const TableModel model{seed};
    FakeState state(model, 4);
    const auto found = BeamSearch<FakeState>(state, options_of(3, 1.0, 4))();
    ASSERT_EQ(found.size(), 4u);
    for (std::int64_t source = 0; source < 4; ++source) {
      std::map<Sentence, double> all;
      all_sentences(model, source, 3, 1.0, {}, 0.0, all);
      const auto& results = found[static_cast<std::size_t>(source)];
      ASSERT_FALSE(results.empty());
      for (std::size_t i = 0; i < results.size(); ++i) {
        if (i > 0) {
          EXPECT_GE(results[i - 1].score, results[i].score);
        }
        if (results[i].tokens.size() > 3) continue;  // cut off, not ended
        ASSERT_TRUE(all.contains(results[i].tokens));
        EXPECT_NEAR(results[i].score, all[results[i].tokens], 1e-5);
      }
    }
  }
}

// As a model with a damaged weight has them.
class BrokenState : public FakeState {
 public:
  using FakeState::FakeState;
  void best(std::int64_t k, TensorView<std::int32_t, 2> tokens,
            TensorView<float, 2> scores) const {
    FakeState::best(k, tokens, scores);
    for (std::int64_t j = 0; j < k; ++j) {
      scores(std::int64_t{0}, j) = std::nanf("");
    }
  }
};

TEST(BeamSearch, ScoresThatAreNotNumbersAreRefused) {
  for (const std::int64_t beam : {1, 3}) {
    BrokenState state(TableModel{1}, 2);
    const auto search = [&] {
      BeamSearch<BrokenState>(state, options_of(beam, 1.0, 4))();
    };
    EXPECT_THAT(search, testing::ThrowsMessage<InvalidArgument>(
                            testing::HasSubstr("must be numbers")));
  }
}

// Two tokens deep, so wide a beam forgets nothing.
TEST(BeamSearch, FindsTheBestSentenceWhereTheBeamHoldsAll) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const TableModel model{seed};
    FakeState state(model, 1);
    const auto found = BeamSearch<FakeState>(state, options_of(50, 0.0, 2))();
    std::map<Sentence, double> all;
    all_sentences(model, 0, 1, 0.0, {}, 0.0, all);
    double best = -1e9;
    for (const auto& [sentence, score] : all) best = std::max(best, score);
    double mine = -1e9;
    for (const Hypothesis& h : found[0]) {
      if (h.tokens.size() <= 1) mine = std::max(mine, h.score);
    }
    EXPECT_NEAR(mine, best, 1e-5);
  }
}

TEST(BeamSearch, ABeamOfOneIsGreedy) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const TableModel model{seed};
    FakeState state(model, 1);
    const auto found = BeamSearch<FakeState>(state, options_of(1, 1.0, 6))();
    Sentence said;
    for (;;) {
      const auto next = model.log_probabilities(0, said);
      std::int32_t best = 1;
      for (std::int32_t token = 1; token < kVocab; ++token) {
        if (next[static_cast<std::size_t>(token)] >
            next[static_cast<std::size_t>(best)]) {
          best = token;
        }
      }
      if (best == text::kEnd) break;
      said.push_back(best);
      if (said.size() == 6) break;
    }
    EXPECT_EQ(found[0].front().tokens, said) << seed;
  }
}

TEST(BeamSearch, NeverSaysUnknownAndNeverMoreThanMaxLength) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    FakeState state({seed}, 5);
    for (const auto& results :
         BeamSearch<FakeState>(state, options_of(3, 1.0, 5))()) {
      EXPECT_LE(results.size(), 3u);
      for (const Hypothesis& h : results) {
        EXPECT_THAT(h.tokens, ::testing::Not(::testing::Contains(0)));
        EXPECT_LE(h.tokens.size(), 5u);
      }
    }
  }
}

// Does `said` end with n tokens that it has said before?
bool repeats(const Sentence& said, std::ptrdiff_t n) {
  if (std::ssize(said) <= n) return false;
  return std::search(said.begin(), said.end() - 1, said.end() - n,
                     said.end()) != said.end() - 1;
}

TEST(BeamSearch, SaysSoManyTokensInARowOnlyOnceWhereAskedTo) {
  bool some_repeat = false;
  for (const std::int64_t n : {1, 2, 3}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const TableModel model{seed};
      SearchOptions options = options_of(1, 1.0, 12);
      FakeState free(model, 1);
      const auto usual = BeamSearch<FakeState>(free, options)();
      Sentence begun;
      for (const std::int32_t token : usual[0].front().tokens) {
        begun.push_back(token);
        some_repeat = some_repeat || repeats(begun, n);
      }
      options.no_repeat_ngram = n;
      FakeState greedy(model, 1);
      const auto found = BeamSearch<FakeState>(greedy, options)();
      Sentence said;
      for (;;) {
        const auto next = model.log_probabilities(0, said);
        std::int32_t best = text::kEnd;
        for (std::int32_t token = 1; token < kVocab; ++token) {
          Sentence longer = said;
          longer.push_back(token);
          if (token != text::kEnd && repeats(longer, n)) continue;
          if (next[static_cast<std::size_t>(token)] >
              next[static_cast<std::size_t>(best)]) {
            best = token;
          }
        }
        if (best == text::kEnd) break;
        said.push_back(best);
        if (said.size() == 12) break;
      }
      EXPECT_EQ(found[0].front().tokens, said) << n << ", seed " << seed;

      options.beam = 3;
      FakeState wide(model, 2);
      for (const auto& results : BeamSearch<FakeState>(wide, options)()) {
        ASSERT_FALSE(results.empty());
        for (const Hypothesis& h : results) {
          Sentence prefix;
          for (const std::int32_t token : h.tokens) {
            prefix.push_back(token);
            EXPECT_FALSE(repeats(prefix, n)) << n << ", seed " << seed;
          }
        }
      }
    }
  }
  EXPECT_TRUE(some_repeat);
}

// The first token costs nothing, but counts; others may be forbidden, and the
// end may have another number.
TEST(BeamSearch, FollowsTheNumbersOfItsModel) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const TableModel model{seed};
    FakeState state(model, 2);
    SearchOptions options = options_of(4, 1.0, 6);
    options.end = 5;
    options.first = 4;
    options.never = {3, 6};
    const auto found = BeamSearch<FakeState>(state, options)();
    for (std::int64_t source = 0; source < 2; ++source) {
      const auto& results = found[static_cast<std::size_t>(source)];
      ASSERT_FALSE(results.empty());
      for (const Hypothesis& h : results) {
        ASSERT_FALSE(h.tokens.empty());
        EXPECT_EQ(h.tokens.front(), 4);
        EXPECT_THAT(h.tokens, ::testing::Each(::testing::AnyOf(0, 1, 2, 4)));
        Sentence said = {4};
        double score = 0;
        for (std::size_t i = 1; i < h.tokens.size(); ++i) {
          score += model.log_probabilities(
              source, said)[static_cast<std::size_t>(h.tokens[i])];
          said.push_back(h.tokens[i]);
        }
        if (!h.ended) continue;
        score += model.log_probabilities(source, said)[5];
        EXPECT_NEAR(h.score, score / static_cast<double>(said.size() + 1),
                    1e-5);
      }
    }
  }
}

TEST(BeamSearch, NeverSaysMoreThanTheModelCanRead) {
  SearchOptions options = options_of(2, 1.0, 50);
  options.limit = 3;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    FakeState state({seed}, 2);
    for (const auto& results : BeamSearch<FakeState>(state, options)()) {
      for (const Hypothesis& h : results) EXPECT_LE(h.tokens.size(), 3u);
    }
  }
}

TEST(BeamSearch, ASourceHasTheSameResultAloneAndBesideOthers) {
  FakeState all({9}, 6);
  const auto together = BeamSearch<FakeState>(all, options_of(2, 1.0, 0))();
  FakeState one({9}, 1);
  const auto alone = BeamSearch<FakeState>(one, options_of(2, 1.0, 0))();
  ASSERT_EQ(together[0].size(), alone[0].size());
  for (std::size_t i = 0; i < alone[0].size(); ++i) {
    EXPECT_EQ(together[0][i].tokens, alone[0][i].tokens);
    EXPECT_EQ(together[0][i].score, alone[0][i].score);
  }
}

TEST(BeamSearch, KeepsWhereEachTokenAndTheEndLooked) {
  SearchOptions options = options_of(2, 1.0, 8);
  options.align_layer = 0;
  FakeState state({3}, 3);
  const auto found = BeamSearch<FakeState>(state, options)();
  for (std::size_t source = 0; source < 3; ++source) {
    for (const Hypothesis& h : found[source]) {
      if (h.tokens.size() == 8) continue;  // cut off
      ASSERT_EQ(h.alignment.size(), h.tokens.size() + 1);
      for (std::size_t t = 0; t < h.alignment.size(); ++t) {
        ASSERT_EQ(h.alignment[t].size(), 2 + source);
        EXPECT_EQ(h.alignment[t][0], static_cast<float>(t + 1));
      }
    }
  }
}

}  // namespace
}  // namespace regard::tasks
