// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10 over vectors of counters: the words of regard/core/random.h.
#if defined(REGARD_KERNELS_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_PHILOX_INL_H_
#undef REGARD_KERNELS_PHILOX_INL_H_
#else
#define REGARD_KERNELS_PHILOX_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

using UTag = hn::RebindToUnsigned<Tag>;
using UVec = hn::Vec<UTag>;

struct PhiloxWords {
  UVec word[4];
};

// Half of the counters, each word in the lower half of a wide lane. What stands
// in the upper half is of no account until the end: the product does not look
// at it, so that no half is ever put together on the way.
using WideTag = hn::RepartitionToWide<UTag>;
using WideVec = hn::Vec<WideTag>;

struct PhiloxHalf {
  WideVec word[4];
};

HWY_INLINE void philox_round(PhiloxHalf& c, WideVec k0, WideVec k1) {
  const UTag du;
  const UVec m0 = hn::Set(du, 0xD2511F53u);
  const UVec m1 = hn::Set(du, 0xCD9E8D57u);
  const WideVec p0 = hn::MulEven(hn::BitCast(du, c.word[0]), m0);
  const WideVec p1 = hn::MulEven(hn::BitCast(du, c.word[2]), m1);
  c.word[0] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c.word[1]), k0);
  c.word[1] = p1;
  c.word[2] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c.word[3]), k1);
  c.word[3] = p0;
}

HWY_INLINE PhiloxWords philox(PhiloxWords c, std::uint64_t key) {
  const UTag du;
  const WideTag dw;
  PhiloxHalf even, odd;
  for (int i = 0; i < 4; ++i) {
    even.word[i] = hn::BitCast(dw, c.word[i]);
    odd.word[i] = hn::ShiftRight<32>(even.word[i]);
  }
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  HWY_UNROLL(10)
  for (int round = 0; round < 10; ++round) {
    const WideVec wide_k0 = hn::BitCast(dw, hn::Set(du, k0));
    const WideVec wide_k1 = hn::BitCast(dw, hn::Set(du, k1));
    philox_round(even, wide_k0, wide_k1);
    philox_round(odd, wide_k0, wide_k1);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int i = 0; i < 4; ++i) {
    c.word[i] = hn::OddEven(hn::BitCast(du, hn::ShiftLeft<32>(odd.word[i])),
                            hn::BitCast(du, even.word[i]));
  }
  return c;
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
