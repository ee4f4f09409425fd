// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "regard/core/threads.h"
#include "regard/tasks/interactions.h"
#include "regard/tasks/recommender.h"

namespace regard::tasks {

inline constexpr std::int64_t kScoredTop = 10;  // the 10 of HR@10
inline constexpr std::int64_t kScoredNegatives = 100;

// Means over users. The rank of the item that came next is the number of
// candidates with a score that is as high or higher: 0 is best, and equal
// scores count against a model.
struct RankingScore {
  double hit_rate = 0;  // HR@10: rank < 10
  double ndcg = 0;      // NDCG@10: 1 / log2(rank + 2) where rank < 10, else 0
  double mrr = 0;       // 1 / (rank + 1)
  // Of all items, how many are in somebody's ten best; 0 where not counted.
  double coverage = 0;
};
RankingScore score_ranks(std::span<const std::int64_t> ranks);

struct RecommendationScore {
  std::int64_t users = 0;
  RankingScore sampled;  // against 100 uniform items that the user never took
  RankingScore full;     // against all items that the user did not take before
};

// Gives each question's scores of all items, as Recommender::score() does.
using ItemScorer = std::function<void(
    std::span<const NextItem> questions,
    const std::function<void(std::size_t i, std::span<const float> scores)>&
        visit)>;

// Scores a model, or anything that gives items scores. The sampled items are
// drawn with repetition, a pure function of the seed and the user's number, and
// are never in the user's whole history.
RecommendationScore score_recommendations(const Interactions& interactions,
                                          HeldOut which,
                                          const ItemScorer& scorer,
                                          std::uint64_t seed);

RecommendationScore score_recommender(const Recommender& model,
                                      const Interactions& interactions,
                                      HeldOut which, std::uint64_t seed,
                                      Threads threads = {});
// The baseline: everybody gets the most frequent items of the training
// data.
RecommendationScore score_popularity(const Interactions& interactions,
                                     HeldOut which, std::uint64_t seed);

}  // namespace regard::tasks
