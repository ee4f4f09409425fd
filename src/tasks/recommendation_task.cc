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

// A history as the model reads it, and what comes after each place.
struct Example {
  std::vector<std::int32_t> inputs, targets;
  std::size_t user = 0;
};

struct Data {
  std::vector<Example> training, held_out;
};

// The last `most` items of [begin, end).
std::vector<std::int32_t> last_of(const std::int32_t* begin,
                                  const std::int32_t* end, std::int64_t most) {
  return {end - std::min<std::int64_t>(most, end - begin), end};
}

Data examples_of(const Interactions& interactions, std::int64_t max_length) {
  Data data;
  for (std::size_t u = 0; u < interactions.histories.size(); ++u) {
    const auto& history = interactions.histories[u];
    const std::int32_t* const begin = history.data();
    const std::int32_t* const end = begin + training_part(std::ssize(history));
    if (end - begin < 2) continue;
    data.training.push_back({last_of(begin, end - 1, max_length),
                             last_of(begin + 1, end, max_length), u});
  }
  for (const NextItem& next :
       held_out_items(interactions, HeldOut::kValidation)) {
    const std::int32_t* const begin = next.history.data();
    data.held_out.push_back(
        {last_of(begin, begin + next.history.size(), max_length),
         {next.item},
         static_cast<std::size_t>(next.user)});
  }
  return data;
}

std::vector<std::int64_t> lengths(const std::vector<Example>& examples) {
  std::vector<std::int64_t> out;
  for (const Example& example : examples) {
    out.push_back(std::ssize(example.inputs));
  }
  return out;
}

// For each target of an example, items that are not in what is learnt of its
// user. A user who took everything has none to draw from, and gets any.
void draw_negatives(const std::vector<std::int32_t>& history,
                    std::int64_t items, std::int64_t count, Random& random,
                    std::vector<std::int32_t>& negatives) {
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

}  // namespace

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
  const auto data = std::make_shared<const Data>(
      examples_of(interactions, config.encoder.max_length));
  ExampleTaskParts parts;
  parts.parameters = recommender_specs(encoder);
  parts.lengths = lengths(data->training);
  parts.held_out_lengths = lengths(data->held_out);
  parts.loss = [=, &interactions](nn::Pass& pass, Part part,
                                  std::span<const std::int64_t> examples,
                                  std::uint64_t draw) -> nn::LossSum {
    const bool training = part == Part::kTraining;
    nn::PackedTokens inputs;
    std::vector<std::int32_t> targets, negatives, last;
    constexpr std::uint64_t kOwn = 0x6E65676174;  // apart from the layers' own
    Random random(draw ^ kOwn);
    for (const std::int64_t number : examples) {
      const auto i = static_cast<std::size_t>(number);
      const Example& example = training ? data->training[i] : data->held_out[i];
      inputs.append(example.inputs);
      last.push_back(static_cast<std::int32_t>(inputs.size() - 1));
      targets.insert(targets.end(), example.targets.begin(),
                     example.targets.end());
      if (config.loss == RecommendationLoss::kBinary) {
        draw_negatives(
            interactions.histories[example.user], config.encoder.vocab,
            config.negatives * std::ssize(example.targets), random, negatives);
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
