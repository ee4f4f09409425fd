// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace regard {

// Philox 4x32 with ten rounds (Salmon et al., 2011): four random words that are
// a pure function of a key and a counter. What is drawn for an element depends
// on the element's place alone, never on who draws first.
using PhiloxCounter = std::array<std::uint32_t, 4>;
PhiloxCounter philox(PhiloxCounter counter, std::uint64_t key);

// A sequence of numbers from one seed, for initialisation and tests.
class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}

  std::uint32_t next_u32();
  float uniform();                       // in [0, 1)
  float uniform(float low, float high);  // in [low, high)
  float normal();                        // mean 0, variance 1
  std::int64_t below(std::int64_t n);    // in [0, n), unbiased; n > 0

 private:
  std::uint64_t seed_;
  std::uint64_t drawn_ = 0;
  PhiloxCounter words_{};
};

}  // namespace regard
