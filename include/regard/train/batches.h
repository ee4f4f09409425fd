// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace regard::train {

struct BatchOptions {
  std::int64_t tokens = 4096;  // at most, in one batch
  std::int64_t pool = 64;      // so many batches' examples are sorted together
  std::uint64_t seed = 1;
};

// One epoch: every example, by its number, in exactly one batch. Examples are
// shuffled, cut into pools, sorted by length within a pool, and cut into
// batches whose lengths add up to at most `tokens`; an example that is longer
// than that has a batch of its own. The batches come in random order. All of
// it is a function of the lengths, the options and the epoch.
std::vector<std::vector<std::int64_t>> make_batches(
    std::span<const std::int64_t> lengths, const BatchOptions& options,
    std::int64_t epoch);

}  // namespace regard::train
