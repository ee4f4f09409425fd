// SPDX-License-Identifier: Apache-2.0
// The generators of samples, one each.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/core/random.h"
#include "regard/tasks/samples.h"

namespace regard::tasks {

// One of a list.
template <typename List>
std::string_view any_of(Random& random, const List& list) {
  return list[static_cast<std::size_t>(random.below(std::ssize(list)))];
}

// Reviews that are positive, negative or mixed.
std::vector<SampleFile> sample_reviews(std::uint64_t seed);

// Nested lists of digits.
std::vector<SampleFile> sample_list_ops(std::uint64_t seed);

// Readers of book series, and what they read when.
std::vector<SampleFile> sample_series(std::uint64_t seed);

// Stories, and questions about them.
std::vector<SampleFile> sample_stories(std::uint64_t seed);

// Registers of people, and questions: answers that stand in them, and choices.
std::vector<SampleFile> sample_spans(std::uint64_t seed);
std::vector<SampleFile> sample_choices(std::uint64_t seed);

// Dialogues, and what came out of them.
std::vector<SampleFile> sample_dialogues(std::uint64_t seed);

// Pictures of coloured shapes, and what they show.
std::vector<SampleFile> sample_shapes(std::uint64_t seed);

// Clips of shapes that move.
std::vector<SampleFile> sample_moving_shapes(std::uint64_t seed);

}  // namespace regard::tasks
