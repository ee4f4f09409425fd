// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope.cc"
#include "hwy/foreach_target.h"
// The line above includes this file again, once for each target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Pair by pair, for what does not fill a vector. `a` and `b` are read before
// either is written, because y may be x.
template <bool kInverse>
HWY_INLINE void rotate_pair(float a, float b, float cos, float sin, float* y_a,
                            float* y_b) {
  if constexpr (kInverse) sin = -sin;
  *y_a = a * cos - b * sin;
  *y_b = b * cos + a * sin;
}

template <bool kInverse>
HWY_INLINE void rotate_halves(const Rope& r, const float* x, float* y) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= r.half; i += lanes) {
    const auto a = hn::LoadU(d, x + i);
    const auto b = hn::LoadU(d, x + r.half + i);
    const auto cos = hn::LoadU(d, r.cos + i);
    auto sin = hn::LoadU(d, r.sin + i);
    if constexpr (kInverse) sin = hn::Neg(sin);
    hn::StoreU(hn::Sub(hn::Mul(a, cos), hn::Mul(b, sin)), d, y + i);
    hn::StoreU(hn::Add(hn::Mul(b, cos), hn::Mul(a, sin)), d, y + r.half + i);
  }
  for (; i < r.half; ++i) {
    rotate_pair<kInverse>(x[i], x[r.half + i], r.cos[i], r.sin[i], y + i,
                          y + r.half + i);
  }
}

template <bool kInverse>
HWY_INLINE void rotate_neighbours(const Rope& r, const float* x, float* y) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= r.half; i += lanes) {
    auto a = hn::Undefined(d);
    auto b = hn::Undefined(d);
    hn::LoadInterleaved2(d, x + 2 * i, a, b);
    const auto cos = hn::LoadU(d, r.cos + i);
    auto sin = hn::LoadU(d, r.sin + i);
    if constexpr (kInverse) sin = hn::Neg(sin);
    hn::StoreInterleaved2(hn::Sub(hn::Mul(a, cos), hn::Mul(b, sin)),
                          hn::Add(hn::Mul(b, cos), hn::Mul(a, sin)), d,
                          y + 2 * i);
  }
  for (; i < r.half; ++i) {
    rotate_pair<kInverse>(x[2 * i], x[2 * i + 1], r.cos[i], r.sin[i], y + 2 * i,
                          y + 2 * i + 1);
  }
}

template <bool kInverse>
HWY_INLINE void rotate_heads(const Rope& r) {
  for (std::int64_t h = 0; h < r.heads; ++h) {
    const float* const x = r.x + h * r.x_stride;
    float* const y = r.y + h * r.y_stride;
    if (r.pairs == RopePairs::kInterleaved) {
      rotate_neighbours<kInverse>(r, x, y);
    } else {
      rotate_halves<kInverse>(r, x, y);
    }
    if (x != y) std::copy(x + 2 * r.half, x + r.dim, y + 2 * r.half);
  }
}

void run_rope(const Rope& r) { rotate_heads<false>(r); }
void run_rope_inverse(const Rope& r) { rotate_heads<true>(r); }

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::kernels {

HWY_EXPORT(run_rope);
HWY_EXPORT(run_rope_inverse);

void rope(const Rope& r) noexcept { HWY_DYNAMIC_DISPATCH(run_rope)(r); }

void rope_inverse(const Rope& r) noexcept {
  HWY_DYNAMIC_DISPATCH(run_rope_inverse)(r);
}

}  // namespace regard::kernels
#endif  // HWY_ONCE
