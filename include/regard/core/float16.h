// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace regard {

// Storage types. Arithmetic is done in float; a conversion to storage rounds
// to the nearest value, ties to even, and keeps NaN a NaN.

struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) : bits(round(value)) {}
  explicit operator float() const {
    return std::bit_cast<float>(std::uint32_t{bits} << 16);
  }

 private:
  static std::uint16_t round(float value) {
    const auto b = std::bit_cast<std::uint32_t>(value);
    if ((b & 0x7fffffffu) > 0x7f800000u) {
      // Rounding could carry a NaN's payload into infinity: set a quiet bit.
      return static_cast<std::uint16_t>((b >> 16) | 0x40u);
    }
    return static_cast<std::uint16_t>((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
  }
};

struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value);
  explicit operator float() const;
};

static_assert(sizeof(BFloat16) == 2 && sizeof(Float16) == 2);

}  // namespace regard
