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

// high and low words of a * m, lane by lane.
HWY_INLINE void multiply_wide(UVec a, UVec m, UVec& high, UVec& low) {
  const UTag du;
  const hn::RepartitionToWide<UTag> du64;
  const auto even = hn::MulEven(a, m);
  const auto odd =
      hn::MulEven(hn::BitCast(du, hn::ShiftRight<32>(hn::BitCast(du64, a))), m);
  high = hn::OddEven(hn::BitCast(du, odd),
                     hn::BitCast(du, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(du, hn::ShiftLeft<32>(odd)),
                    hn::BitCast(du, even));
}

HWY_INLINE PhiloxWords philox(PhiloxWords c, std::uint64_t key) {
  const UTag du;
  const UVec m0 = hn::Set(du, 0xD2511F53u);
  const UVec m1 = hn::Set(du, 0xCD9E8D57u);
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  HWY_UNROLL(10)
  for (int round = 0; round < 10; ++round) {
    UVec high0, low0, high1, low1;
    multiply_wide(c.word[0], m0, high0, low0);
    multiply_wide(c.word[2], m1, high1, low1);
    c.word[0] = hn::Xor(hn::Xor(high1, c.word[1]), hn::Set(du, k0));
    c.word[1] = low1;
    c.word[2] = hn::Xor(hn::Xor(high0, c.word[3]), hn::Set(du, k1));
    c.word[3] = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
