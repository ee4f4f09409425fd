// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Rotary positions: pairs of elements rotated by an angle of their position.
// Products and sums are rounded one by one, so the bits are the same on every
// machine, with or without fused operations.
namespace regard::kernels {

enum class RopePairs {
  kHalfSplit,    // (i, i + half)
  kInterleaved,  // (2 i, 2 i + 1)
};

// The vectors of one token, one per head, which all rotate alike.
struct Rope {
  RopePairs pairs = RopePairs::kHalfSplit;
  std::int64_t heads = 0;
  std::int64_t dim = 0;      // of a vector; what is beyond 2 * half is copied
  std::int64_t half = 0;     // the number of pairs
  const float* x = nullptr;  // head h at x + h * x_stride
  std::int64_t x_stride = 0;
  const float* cos = nullptr;  // [half]
  const float* sin = nullptr;  // [half]
  float* y = nullptr;          // may be x, with the same stride
  std::int64_t y_stride = 0;
};

// With a pair (a, b): (a cos - b sin, b cos + a sin).
void rope(const Rope& rope) noexcept;

// The inverse, which is also the gradient: (a cos + b sin, b cos - a sin).
void rope_inverse(const Rope& rope) noexcept;

}  // namespace regard::kernels
