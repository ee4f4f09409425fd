// SPDX-License-Identifier: Apache-2.0
#include "regard/train/batches.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "regard/core/error.h"
#include "regard/core/random.h"

namespace regard::train {
namespace {

// Fisher and Yates; std::shuffle differs from one standard library to another.
template <typename T>
void shuffle(std::vector<T>& values, Random& random) {
  for (std::size_t left = values.size(); left > 1; --left) {
    const auto chosen =
        static_cast<std::size_t>(random.below(static_cast<std::int64_t>(left)));
    std::swap(values[left - 1], values[chosen]);
  }
}

std::uint64_t seed_of_epoch(std::uint64_t seed, std::int64_t epoch) {
  const auto place = static_cast<std::uint64_t>(epoch);
  const PhiloxCounter words =
      philox({static_cast<std::uint32_t>(place),
              static_cast<std::uint32_t>(place >> 32), 0x62617463, 0},
             seed);
  return words[0] | static_cast<std::uint64_t>(words[1]) << 32;
}

}  // namespace

std::vector<std::vector<std::int64_t>> make_batches(
    std::span<const std::int64_t> lengths, const BatchOptions& options,
    std::int64_t epoch) {
  require(options.tokens > 0 && options.pool > 0, "make_batches",
          "tokens and pool must be positive; got ", options.tokens, " and ",
          options.pool);
  Random random(seed_of_epoch(options.seed, epoch));
  std::vector<std::int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  shuffle(order, random);
  const auto length = [lengths](std::int64_t example) {
    return lengths[static_cast<std::size_t>(example)];
  };
  std::vector<std::vector<std::int64_t>> batches;
  for (auto begin = order.begin(); begin != order.end();) {
    auto end = begin;
    // Divided, not multiplied: the product of both need not fit in 63 bits.
    for (std::int64_t tokens = 0;
         end != order.end() && tokens / options.pool < options.tokens; ++end) {
      tokens += length(*end);
    }
    std::stable_sort(begin, end, [&length](std::int64_t a, std::int64_t b) {
      return length(a) < length(b);
    });
    std::int64_t room = -1;  // a pool never goes on in the batch of another
    for (; begin != end; ++begin) {
      if (length(*begin) > room) {
        batches.emplace_back();
        room = options.tokens;
      }
      batches.back().push_back(*begin);
      room -= length(*begin);
    }
  }
  shuffle(batches, random);
  return batches;
}

}  // namespace regard::train
