// SPDX-License-Identifier: Apache-2.0
#include "regard/core/float16.h"

namespace regard {
namespace {

// binary16: 1 sign bit, 5 exponent bits (bias 15), 10 fraction bits.
// binary32: 1 sign bit, 8 exponent bits (bias 127), 23 fraction bits.
constexpr std::uint32_t kFloatInfinity = 0x7f800000u;
constexpr std::uint32_t kHalfInfinity = 0x7c00u;
constexpr std::uint32_t kQuietHalfNan = 0x7e00u;
// 65520 lies halfway between the largest half, 65504, and the next power of
// two; the tie goes to the even side, which is infinity.
constexpr std::uint32_t kFirstOverflow = 0x477ff000u;
constexpr std::uint32_t kSmallestNormal = 0x38800000u;  // 2^-14
constexpr std::uint32_t kHalfOfSmallest = 0x33000000u;  // 2^-25: rounds to 0
constexpr std::uint32_t kBiasStep = (127u - 15u) << 23;

// value >> shift, to nearest, ties to even; shift is at least 1.
std::uint32_t shift_rounded(std::uint32_t value, std::uint32_t shift) {
  const std::uint32_t below_half = (1u << (shift - 1)) - 1u;
  return (value + below_half + ((value >> shift) & 1u)) >> shift;
}

std::uint32_t round_magnitude(std::uint32_t magnitude) {
  if (magnitude > kFloatInfinity) {
    return kQuietHalfNan | ((magnitude >> 13) & 0x3ffu);
  }
  if (magnitude >= kFirstOverflow) return kHalfInfinity;
  if (magnitude >= kSmallestNormal) {
    // A carry out of the fraction raises the exponent, which is right.
    return shift_rounded(magnitude - kBiasStep, 13);
  }
  if (magnitude <= kHalfOfSmallest) return 0;
  // Subnormal: count units of 2^-24. The float is significand * 2^(e - 150).
  const std::uint32_t exponent = magnitude >> 23;
  const std::uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  return shift_rounded(significand, 126u - exponent);
}

}  // namespace

Float16::Float16(float value) {
  const auto b = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (b >> 16) & 0x8000u;
  bits = static_cast<std::uint16_t>(sign | round_magnitude(b & 0x7fffffffu));
}

Float16::operator float() const {
  const std::uint32_t sign = (std::uint32_t{bits} & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7fffu;
  if (magnitude >= kHalfInfinity) {
    return std::bit_cast<float>(sign | kFloatInfinity |
                                ((magnitude & 0x3ffu) << 13));
  }
  if (magnitude >= 0x400u) {
    return std::bit_cast<float>(sign | ((magnitude << 13) + kBiasStep));
  }
  // Zero and subnormals: an exact product, and it keeps the sign of zero.
  const float positive = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(positive));
}

}  // namespace regard
