// SPDX-License-Identifier: Apache-2.0
#include "regard/core/random.h"

#include <cmath>
#include <numbers>

#include "regard/core/error.h"

namespace regard {

PhiloxCounter philox(PhiloxCounter counter, std::uint64_t key) {
  constexpr std::uint64_t kMultiplier0 = 0xd2511f53u;
  constexpr std::uint64_t kMultiplier1 = 0xcd9e8d57u;
  constexpr std::uint32_t kWeyl0 = 0x9e3779b9u;  // the golden ratio
  constexpr std::uint32_t kWeyl1 = 0xbb67ae85u;  // sqrt(3) - 1
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0,
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1,
               static_cast<std::uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

std::uint32_t Random::next_u32() {
  const std::uint64_t place = drawn_ % 4;
  if (place == 0) {
    const std::uint64_t block = drawn_ / 4;
    words_ = philox({static_cast<std::uint32_t>(block),
                     static_cast<std::uint32_t>(block >> 32), 0, 0},
                    seed_);
  }
  ++drawn_;
  return words_[place];
}

float Random::uniform() {
  return static_cast<float>(next_u32() >> 8) * 0x1p-24f;
}

float Random::uniform(float low, float high) {
  require(std::isfinite(low) && std::isfinite(high) && low < high,
          "Random::uniform", "low must be below high and both finite; got ",
          low, " and ", high);
  const double width = static_cast<double>(high) - low;
  const auto value = static_cast<float>(low + width * uniform());
  // Rounding to float may reach the open end.
  return value < high ? value : std::nextafter(high, low);
}

float Random::normal() {
  // Box-Muller. The first word is taken from (0, 1], where the logarithm is
  // finite; the second normal of the pair is not kept, so that the sequence
  // has no state beyond its position.
  const double u = (next_u32() + 1.0) * 0x1p-32;
  const double angle = 2.0 * std::numbers::pi * (next_u32() * 0x1p-32);
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(angle));
}

std::int64_t Random::below(std::int64_t n) {
  require(n > 0, "Random::below", "n must be positive; got ", n);
  const auto range = static_cast<std::uint64_t>(n);
  // 2^64 mod range words at the low end would favour the small results.
  const std::uint64_t biased = (0 - range) % range;
  for (;;) {
    const std::uint64_t high = next_u32();
    const std::uint64_t word = (high << 32) | next_u32();
    if (word >= biased) return static_cast<std::int64_t>(word % range);
  }
}

}  // namespace regard
