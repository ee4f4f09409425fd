// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10 written a second time from the paper (Salmon et al., "Parallel
// random numbers: as easy as 1, 2, 3", 2011), so that dropout is checked
// against something other than the generator it uses.
#pragma once

#include <cstdint>

namespace regard::test {

struct PhiloxWords {
  std::uint32_t w[4];
};

inline PhiloxWords philox_reference(PhiloxWords counter, std::uint32_t key_low,
                                    std::uint32_t key_high) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t left = std::uint64_t{0xD2511F53} * counter.w[0];
    const std::uint64_t right = std::uint64_t{0xCD9E8D57} * counter.w[2];
    const auto high = [](std::uint64_t product) {
      return static_cast<std::uint32_t>(product >> 32);
    };
    const auto low = [](std::uint64_t product) {
      return static_cast<std::uint32_t>(product);
    };
    counter = {{high(right) ^ counter.w[1] ^ key_low, low(right),
                high(left) ^ counter.w[3] ^ key_high, low(left)}};
    key_low += 0x9E3779B9;   // the golden ratio
    key_high += 0xBB67AE85;  // sqrt(3) - 1
  }
  return counter;
}

// The random word of one attention weight.
inline std::uint32_t dropout_word(std::uint64_t seed, std::int64_t batch,
                                  std::int64_t head, std::int64_t query,
                                  std::int64_t key) {
  const PhiloxWords words = philox_reference(
      {{static_cast<std::uint32_t>(key / 4), static_cast<std::uint32_t>(query),
        static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(batch)}},
      static_cast<std::uint32_t>(seed & 0xffffffffu),
      static_cast<std::uint32_t>(seed >> 32));
  return words.w[key % 4];
}

}  // namespace regard::test
