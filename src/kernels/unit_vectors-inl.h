// SPDX-License-Identifier: Apache-2.0
// Dot products in one order for every vector width, and vectors of length 1,
// which cosine scores are made of.
#if defined(REGARD_KERNELS_UNIT_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_UNIT_VECTORS_INL_H_
#undef REGARD_KERNELS_UNIT_VECTORS_INL_H_
#else
#define REGARD_KERNELS_UNIT_VECTORS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

// a . b in one order for every vector width: sixteen strided chains, then a
// tree.
HWY_INLINE float ordered_dot(const float* a, const float* b, std::int64_t n) {
  const Tag d;
  constexpr int kVecs = 16 / kVecLanes;
  Vec sum[kVecs];
  for (int j = 0; j < kVecs; ++j) sum[j] = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int j = 0; j < kVecs; ++j) {
      sum[j] = hn::MulAdd(hn::LoadU(d, a + i + j * kVecLanes),
                          hn::LoadU(d, b + i + j * kVecLanes), sum[j]);
    }
  }
  HWY_ALIGN float lanes[16];
  for (int j = 0; j < kVecs; ++j) hn::Store(sum[j], d, lanes + j * kVecLanes);
  for (; i < n; ++i) lanes[i % 16] = std::fma(a[i], b[i], lanes[i % 16]);
#if HWY_TARGET == HWY_SCALAR
  for (int width = 8; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
#else
  // The same sums: the upper half onto the lower one, until one is left.
  const hn::Full128<float> q;
  auto half = hn::Add(hn::Add(hn::Load(q, lanes), hn::Load(q, lanes + 8)),
                      hn::Add(hn::Load(q, lanes + 4), hn::Load(q, lanes + 12)));
  half = hn::Add(half, hn::Shuffle1032(half));
  return hn::GetLane(hn::Add(half, hn::Shuffle2301(half)));
#endif
}

// What makes a vector one of length 1: x * scale * inverse, with `scale` a
// power of two that keeps the sum of squares where floats are exact. 0 for
// zeros.
struct UnitFactors {
  float scale = 1;
  float inverse = 1;

  float inverse_norm() const { return scale * inverse; }
};

// `squares` is the sum of squares of n elements, which element(c) returns.
template <typename Element>
HWY_INLINE UnitFactors unit_factors(float squares, std::int64_t n,
                                    const Element& element) {
  if (squares > 0x1p-100f && squares < 0x1p100f) [[likely]] {
    return {1, 1 / std::sqrt(squares)};
  }
  float largest = 0;
  for (std::int64_t c = 0; c < n; ++c) {
    largest = std::max(largest, std::abs(element(c)));
  }
  if (largest == 0 && squares == 0) return {1, 0};
  // Infinity and NaN reach whoever sees them.
  if (!(largest < kInfinity) || squares != squares) {
    return {1, 1 / std::sqrt(squares)};
  }
  const float scale =
      std::ldexp(1.0f, std::clamp(-std::ilogb(largest), -126, 126));
  float lanes[16] = {};
  for (std::int64_t c = 0; c < n; ++c) {
    const float x = element(c) * scale;
    lanes[c % 16] = std::fma(x, x, lanes[c % 16]);
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return {scale, 1 / std::sqrt(lanes[0])};
}

HWY_INLINE UnitFactors unit_factors(const float* x, std::int64_t n) {
  return unit_factors(ordered_dot(x, x, n), n,
                      [x](std::int64_t c) { return x[c]; });
}

// x <- x / |x|; returns 1 / |x|.
HWY_INLINE float normalize(float* x, std::int64_t n) {
  const UnitFactors unit = unit_factors(x, n);
  for (std::int64_t c = 0; c < n; ++c) x[c] = x[c] * unit.scale * unit.inverse;
  return unit.inverse_norm();
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
