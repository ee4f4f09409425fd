// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_map>

#include "regard/tasks/recommender.h"

namespace regard::tasks {

struct Recommender::Parts {
  RecommenderConfig config;
  std::vector<std::string> items;
  std::unordered_map<std::string, std::int32_t> numbers;
  StateDict weights;
  nn::Encoder encoder;

  // Throws InvalidArgument for a history that is empty or names no item, and
  // gives its last max_length items.
  std::vector<std::int32_t> readable(
      std::span<const std::int32_t> history) const;
};

// Throws InvalidArgument for a config that makes no sense.
nn::Encoder recommender_encoder(const RecommenderConfig& config);
nn::ParameterSpecs recommender_specs(const nn::Encoder& encoder);

}  // namespace regard::tasks
