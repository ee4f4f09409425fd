// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/recommendation_score.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "regard/core/error.h"
#include "regard/core/random.h"

namespace regard::tasks {
namespace {

std::vector<std::int32_t> sorted_set(ItemList list) {
  std::vector<std::int32_t> items(list.begin(), list.end());
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
  return items;
}

bool holds(const std::vector<std::int32_t>& set, std::int32_t item) {
  return std::binary_search(set.begin(), set.end(), item);
}

// Among items that the user never took.
std::int64_t sampled_rank(std::span<const float> scores,
                          const NextItem& question,
                          const std::vector<std::int32_t>& taken,
                          std::uint64_t seed) {
  const auto items = std::ssize(scores);
  if (std::ssize(taken) == items) return 0;
  const PhiloxCounter words =
      philox({static_cast<std::uint32_t>(question.user),
              static_cast<std::uint32_t>(question.user >> 32), 0x72616E6B, 0},
             seed);
  Random random(words[0] | static_cast<std::uint64_t>(words[1]) << 32);
  const float own = scores[static_cast<std::size_t>(question.item)];
  std::int64_t rank = 0;
  for (std::int64_t n = 0; n < kScoredNegatives;) {
    const auto item = static_cast<std::int32_t>(random.below(items));
    if (holds(taken, item)) continue;
    rank += scores[static_cast<std::size_t>(item)] >= own ? 1 : 0;
    ++n;
  }
  return rank;
}

// Among all items that the user had not taken before.
std::int64_t full_rank(std::span<const float> scores, const NextItem& question,
                       const std::vector<std::int32_t>& before) {
  const float own = scores[static_cast<std::size_t>(question.item)];
  const auto beats = [&](float score) { return score >= own; };
  std::int64_t rank = std::count_if(scores.begin(), scores.end(), beats);
  for (const std::int32_t item : before) {
    if (item == question.item) continue;
    rank -= beats(scores[static_cast<std::size_t>(item)]) ? 1 : 0;
  }
  return rank - 1;  // the item itself
}

}  // namespace

RankingScore score_ranks(std::span<const std::int64_t> ranks) {
  RankingScore score;
  for (const std::int64_t rank : ranks) {
    const auto place = static_cast<double>(rank);
    if (rank < kScoredTop) {
      score.hit_rate += 1;
      score.ndcg += 1 / std::log2(place + 2);
    }
    score.mrr += 1 / (place + 1);
  }
  const auto users =
      static_cast<double>(std::max<std::size_t>(1, ranks.size()));
  score.hit_rate /= users;
  score.ndcg /= users;
  score.mrr /= users;
  return score;
}

RecommendationScore score_recommendations(const Interactions& interactions,
                                          HeldOut which,
                                          const ItemScorer& scorer,
                                          std::uint64_t seed) {
  const std::vector<NextItem> questions = held_out_items(interactions, which);
  std::vector<std::int64_t> sampled(questions.size());
  std::vector<std::int64_t> full(questions.size());
  std::vector<bool> shown(interactions.items.size());
  std::mutex mutex;
  scorer(questions, [&](std::size_t i, std::span<const float> scores) {
    const NextItem& question = questions[i];
    const auto user = static_cast<std::size_t>(question.user);
    const auto taken = sorted_set(interactions.histories[user]);
    sampled[i] = sampled_rank(scores, question, taken, seed);
    full[i] = full_rank(scores, question, sorted_set(question.history));
    const auto best = best_items(scores, question.history, kScoredTop);
    const std::lock_guard lock(mutex);
    for (const Recommendation& one : best) {
      shown[static_cast<std::size_t>(one.item)] = true;
    }
  });
  RecommendationScore score{std::ssize(questions), score_ranks(sampled),
                            score_ranks(full)};
  if (!shown.empty()) {
    score.full.coverage =
        static_cast<double>(std::count(shown.begin(), shown.end(), true)) /
        static_cast<double>(shown.size());
  }
  return score;
}

RecommendationScore score_recommender(const Recommender& model,
                                      const Interactions& interactions,
                                      HeldOut which, std::uint64_t seed,
                                      Threads threads) {
  require(interactions.items == model.items(), "score_recommender",
          "the interactions must have the items of the model");
  const ItemScorer scorer = [&](std::span<const NextItem> questions,
                                const auto& visit) {
    std::vector<ItemList> histories;
    histories.reserve(questions.size());
    for (const NextItem& question : questions) {
      histories.push_back(question.history);
    }
    model.score(histories, visit, threads);
  };
  return score_recommendations(interactions, which, scorer, seed);
}

RecommendationScore score_popularity(const Interactions& interactions,
                                     HeldOut which, std::uint64_t seed) {
  const std::vector<float> counts(interactions.counts.begin(),
                                  interactions.counts.end());
  const ItemScorer scorer = [&](std::span<const NextItem> questions,
                                const auto& visit) {
    for (std::size_t i = 0; i < questions.size(); ++i) visit(i, counts);
  };
  return score_recommendations(interactions, which, scorer, seed);
}

}  // namespace regard::tasks
