// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>
#include <vector>

#include "regard/core/random.h"
#include "regard/tasks/recommender.h"

namespace regard::tasks {

struct Recommender::Parts {
  RecommenderConfig config;
  std::vector<std::string> items;
  std::unordered_map<std::string, std::int32_t> numbers;
  nn::PackedParameters weights;
  nn::Encoder encoder;

  // Throws InvalidArgument for a history that is empty or names no item, and
  // gives its last max_length items.
  ItemList readable(ItemList history) const;
};

// Adds `count` items that are not in what is learnt of the user.
void draw_negatives(ItemList history, std::int64_t items, std::int64_t count,
                    Random& random, std::vector<std::int32_t>& negatives);
// What those of a batch are drawn from, one history after the other.
Random negatives_at(std::uint64_t draw);

// Throws InvalidArgument for a config that makes no sense.
nn::Encoder recommender_encoder(const RecommenderConfig& config);
nn::ParameterSpecs recommender_specs(const nn::Encoder& encoder);

}  // namespace regard::tasks
