// SPDX-License-Identifier: Apache-2.0
// Vectors at the end of a row, where fewer elements than lanes are left.
#if defined(REGARD_KERNELS_VECTOR_ENDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_VECTOR_ENDS_INL_H_
#undef REGARD_KERNELS_VECTOR_ENDS_INL_H_
#else
#define REGARD_KERNELS_VECTOR_ENDS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that sixteen chains are a whole number of vectors.
using EndTag = hn::CappedTag<float, 16>;
using EndVec = hn::Vec<EndTag>;
constexpr std::int64_t kEndLanes =
    static_cast<std::int64_t>(hn::MaxLanes(EndTag()));

// The first `left` elements, at least one, and zeros; all lanes where left is
// larger.
HWY_INLINE EndVec load_left(const float* from, std::int64_t left) {
  const EndTag d;
  if (HWY_LIKELY(left >= kEndLanes)) return hn::LoadU(d, from);
    // Masked loads touch no element past the end here, and need not wait for a
    // copy to reach memory. (AVX2 has them for floats, whatever Highway says of
    // the target as a whole.)
#if HWY_TARGET == HWY_AVX2 || !HWY_MEM_OPS_MIGHT_FAULT
  return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(left)), d, from);
#else
  HWY_ALIGN float all[kEndLanes] = {};
  std::copy_n(from, left, all);
  return hn::Load(d, all);
#endif
}

HWY_INLINE void store_left(EndVec v, float* to, std::int64_t left) {
  const EndTag d;
  if (HWY_LIKELY(left >= kEndLanes)) {
    hn::StoreU(v, d, to);
    return;
  }
  HWY_ALIGN float all[kEndLanes];
  hn::Store(v, d, all);
  std::copy_n(all, left, to);
}

// Calls body(index, elements left) for each vector of [0, n).
template <typename Body>
HWY_INLINE void over_vectors(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + kEndLanes <= n; i += kEndLanes) body(i, kEndLanes);
  if (i < n) body(i, n - i);
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
