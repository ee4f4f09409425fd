// SPDX-License-Identifier: Apache-2.0
// What a recommender learns from.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include "regard/core/error.h"
#include "regard/core/random.h"
#include "tasks/recommender_parts.h"

namespace regard::tasks {
namespace {

// A history as the model reads it, and what comes after each place. Borrows.
struct Example {
  ItemList inputs, targets;
};

// The last `most` items.
ItemList last_of(ItemList items, std::int64_t most) {
  return items.last(std::min(items.size(), static_cast<std::size_t>(most)));
}

Example example_of(ItemList history, Part part, std::int64_t max_length) {
  const auto learnt =
      static_cast<std::size_t>(training_part(std::ssize(history)));
  if (part == Part::kHeldOut) {
    return {last_of(history.first(learnt), max_length),
            history.subspan(learnt, 1)};
  }
  return {last_of(history.first(learnt - 1), max_length),
          last_of(history.subspan(1, learnt - 1), max_length)};
}

// The users who have an example of each part.
struct Users {
  std::vector<std::int32_t> training, held_out;
};

Users users_of(const Histories& histories) {
  Users users;
  for (std::size_t u = 0; u < histories.size(); ++u) {
    const std::int64_t length = std::ssize(histories[u]);
    const auto user = static_cast<std::int32_t>(u);
    if (training_part(length) >= 2) users.training.push_back(user);
    if (length >= 3) users.held_out.push_back(user);
  }
  return users;
}

std::vector<std::int64_t> lengths(const Histories& histories,
                                  const std::vector<std::int32_t>& users,
                                  Part part, std::int64_t max_length) {
  std::vector<std::int64_t> out;
  out.reserve(users.size());
  for (const std::int32_t user : users) {
    out.push_back(std::ssize(
        example_of(histories[static_cast<std::size_t>(user)], part, max_length)
            .inputs));
  }
  return out;
}

}  // namespace

// A user who took everything has none to draw from, and gets any.
void draw_negatives(ItemList history, std::int64_t items, std::int64_t count,
                    Random& random, std::vector<std::int32_t>& negatives) {
  const std::unordered_set<std::int32_t> taken(
      history.begin(), history.begin() + training_part(std::ssize(history)));
  const bool has_all = std::ssize(taken) == items;
  while (count > 0) {
    const auto item = static_cast<std::int32_t>(random.below(items));
    if (!has_all && taken.contains(item)) continue;
    negatives.push_back(item);
    --count;
  }
}

Random negatives_at(std::uint64_t draw) {
  constexpr std::uint64_t kOwn = 0x6E65676174;  // apart from the layers' own
  return Random(draw ^ kOwn);
}

nn::Encoder recommender_encoder(const RecommenderConfig& config) {
  require(config.encoder.pooling == nn::Pooling::kLast, "Recommender",
          "pooling must be kLast: the last item has seen the others");
  return nn::Encoder(config.encoder);
}

nn::ParameterSpecs recommender_specs(const nn::Encoder& encoder) {
  nn::ParameterSpecs specs;
  encoder.declare(specs);
  // Small, as SASRec's are: an item that is hardly ever taken keeps what it
  // starts with, and must not stand out by it.
  specs.at("embedding.weight").start = nn::ParameterSpec::Start::kXavierUniform;
  return specs;
}

ExampleTask make_recommendation_task(const RecommenderConfig& config,
                                     const Interactions& interactions,
                                     std::uint64_t seed, Threads threads) {
  constexpr const char* kWhere = "make_recommendation_task";
  require(config.encoder.vocab == std::ssize(interactions.items), kWhere,
          "vocab must be the number of items, ", interactions.items.size(),
          "; it is ", config.encoder.vocab);
  require(config.negatives > 0, kWhere,
          "there must be at least one negative; got ", config.negatives);
  const nn::Encoder encoder = recommender_encoder(config);
  const Histories& histories = interactions.histories;
  const std::int64_t most = config.encoder.max_length;
  const auto users = std::make_shared<const Users>(users_of(histories));
  ExampleTaskParts parts;
  parts.parameters = recommender_specs(encoder);
  parts.lengths = lengths(histories, users->training, Part::kTraining, most);
  parts.held_out_lengths =
      lengths(histories, users->held_out, Part::kHeldOut, most);
  parts.loss = [=, &histories](nn::Pass& pass, Part part,
                               std::span<const std::int64_t> examples,
                               std::uint64_t draw) -> nn::LossSum {
    const bool training = part == Part::kTraining;
    nn::PackedTokens inputs;
    std::vector<std::int32_t> targets, negatives, last;
    Random random = negatives_at(draw);
    for (const std::int64_t number : examples) {
      const auto i = static_cast<std::size_t>(number);
      const ItemList history = histories[static_cast<std::size_t>(
          training ? users->training[i] : users->held_out[i])];
      const Example example = example_of(history, part, most);
      inputs.append(example.inputs);
      last.push_back(static_cast<std::int32_t>(inputs.size() - 1));
      targets.insert(targets.end(), example.targets.begin(),
                     example.targets.end());
      if (config.loss == RecommendationLoss::kBinary) {
        draw_negatives(history, config.encoder.vocab,
                       config.negatives * std::ssize(example.targets), random,
                       negatives);
      }
    }
    nn::Variable x = encoder.encode(pass, encoder.embed(pass, inputs), inputs,
                                    mask::causal());
    if (!training) x = autograd::gather_rows(pass.tape(), x, last);
    const nn::Variable items = pass.parameter("embedding.weight");
    if (config.loss == RecommendationLoss::kBinary) {
      const double loss = autograd::sampled_binary_cross_entropy(
          pass.tape(), x, items, targets, negatives);
      return {loss, loss, std::ssize(targets)};
    }
    const autograd::CrossEntropySum sum =
        autograd::cross_entropy(pass.tape(), x, items, {}, targets, 0);
    return {sum.loss, sum.likelihood, std::ssize(targets)};
  };
  return {std::move(parts), seed, threads};
}

}  // namespace regard::tasks
