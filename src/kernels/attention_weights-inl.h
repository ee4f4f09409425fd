// SPDX-License-Identifier: Apache-2.0
#if defined(REGARD_KERNELS_ATTENTION_WEIGHTS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_ATTENTION_WEIGHTS_INL_H_
#undef REGARD_KERNELS_ATTENTION_WEIGHTS_INL_H_
#else
#define REGARD_KERNELS_ATTENTION_WEIGHTS_INL_H_
#endif

#include <algorithm>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/attention_scores-inl.h"
#include "kernels/attention_weights.h"
#include "kernels/kept_weights-inl.h"
#include "kernels/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

// The weights of one group of rows. Maxima and sums are taken by the operations
// of ForwardPass, in its order, so that weights belong to what it returns.
class WeightsPass {
 public:
  HWY_INLINE WeightsPass(const AttentionBlock& block,
                         const AttentionWeights& to)
      : block_(block), to_(to), scores_(block) {}

  HWY_INLINE void run() {
    // 1. The scores of all keys into the tile; each row's maximum and sum.
    Sums total, part;
    for (std::int64_t s = scores_.begin() / kSplitKeys;
         s * kSplitKeys < scores_.end(); ++s) {
      run_split(s, part);
      merge(total, part);
    }
    if (block_.has_sink) add_sinks(total);
    // 2. The weights.
    put_zeros(to_, block_.row_count, 0, scores_.begin());
    put(total);
    put_zeros(to_, block_.row_count, scores_.end(), to_.keys);
  }

 private:
  struct Sums {
    HWY_ALIGN float max[kGroupRows];
    HWY_ALIGN float sum[kGroupRows];

    HWY_INLINE Sums() { clear(); }
    HWY_INLINE void clear() {
      std::fill(max, max + kGroupRows, -kInfinity);
      std::fill(sum, sum + kGroupRows, 0.0f);
    }
  };

  HWY_INLINE void run_split(std::int64_t split, Sums& sums) {
    sums.clear();
    const std::int64_t first = std::max(split * kSplitKeys, scores_.begin());
    const std::int64_t last = std::min((split + 1) * kSplitKeys, scores_.end());
    for (std::int64_t key = first; key < last; key = key_block_end(key)) {
      const std::int64_t end = std::min(last, key_block_end(key));
      scores_.load_keys(key, end);
      if (!scores_.compute(0)) {
        hide(key, end);
        continue;
      }
      const std::int64_t seen = scores_.first_key();
      hide(key, seen);
      hide(seen + scores_.keys(), end);
      store_scores(to_.tile + seen * kGroupRows);
      add(sums);
    }
  }

  HWY_INLINE void hide(std::int64_t begin, std::int64_t end) const {
    if (begin >= end) return;
    std::fill(to_.tile + begin * kGroupRows, to_.tile + end * kGroupRows,
              -kInfinity);
  }

  HWY_INLINE void store_scores(float* to) const {
    const Tag d;
    for (int j = 0; j < scores_.vecs(0); ++j) {
      const float* s = scores_.scores() + j * kVecLanes;
      float* at = to + j * kVecLanes;
      const auto [from, last] = scores_.vec_keys(j);
      for (std::int64_t i = 0; i < scores_.keys(); ++i) {
        const bool shown = i >= from && i < last;
        hn::Store(shown ? hn::Load(d, s) : hn::Set(d, -kInfinity), d, at);
        s += kGroupRows;
        at += kGroupRows;
      }
    }
  }

  HWY_INLINE void add(Sums& sums) const {
    const Tag d;
    for (int j = 0; j < scores_.vecs(0); ++j) {
      float* const max_at = sums.max + j * kVecLanes;
      float* const sum_at = sums.sum + j * kVecLanes;
      const float* const s = scores_.scores() + j * kVecLanes;
      const auto [from, to] = scores_.vec_keys(j);
      const Vec before = hn::Load(d, max_at);
      const Vec max = hn::Max(
          round_max(hn::Load(d, scores_.max() + j * kVecLanes)), before);
      const Vec block =
          weigh_keys(Exp2Base(max), s, {from, to}, scores_.first_key(),
                     [](std::int64_t, Vec) HWY_ATTR {});
      const Vec sum =
          hn::MulAdd(hn::Load(d, sum_at), rescale_factor(before, max), block);
      hn::Store(max, d, max_at);
      hn::Store(sum, d, sum_at);
    }
  }

  static HWY_INLINE void merge(Sums& into, const Sums& from) {
    const Tag d;
    for (int i = 0; i < kGroupRows; i += kVecLanes) {
      const Vec a = hn::Load(d, into.max + i);
      const Vec b = hn::Load(d, from.max + i);
      const Vec max = hn::Max(a, b);
      const Vec kept =
          hn::Mul(hn::Load(d, into.sum + i), rescale_factor(a, max));
      hn::Store(
          hn::MulAdd(hn::Load(d, from.sum + i), rescale_factor(b, max), kept),
          d, into.sum + i);
      hn::Store(max, d, into.max + i);
    }
  }

  HWY_INLINE void add_sinks(Sums& sums) const {
    const Tag d;
    for (int i = 0; i < block_.row_count; i += kVecLanes) {
      HWY_ALIGN float sinks[kVecLanes];
      for (int r = 0; r < kVecLanes; ++r) sinks[r] = scores_.row(i + r).sink;
      const Vec sink = hn::Mul(hn::Load(d, sinks), hn::Set(d, kLog2E));
      const Vec before = hn::Load(d, sums.max + i);
      const Vec max = hn::Max(before, round_max(sink));
      const Exp2Base exp2(max);
      hn::Store(hn::MulAdd(hn::Load(d, sums.sum + i),
                           rescale_factor(before, max), exp2.any(sink)),
                d, sums.sum + i);
      hn::Store(max, d, sums.max + i);
    }
  }

  HWY_INLINE void put(const Sums& total) const {
    const Tag d;
    bool broken = false;
    for (int r = 0; r < block_.row_count; ++r) {
      broken = broken || total.sum[r] != total.sum[r];
    }
    put_weights(
        to_, block_.row_count, scores_.begin(), scores_.end(),
        [&](int j) HWY_ATTR {
          const Exp2Base exp2(hn::Load(d, total.max + j * kVecLanes));
          const bool small = exp2.small();
          const Vec factor =
              weight_factor(hn::Load(d, total.sum + j * kVecLanes));
          return [=](Vec s) HWY_ATTR {
            const Vec w = hn::Mul(small ? exp2(s) : exp2.any(s), factor);
            if (!broken) [[likely]] {
              return w;
            }
            // What is not finite reaches the keys that the row sees, not the
            // hidden.
            return hn::IfThenZeroElse(hn::Eq(s, hn::Set(Tag(), -kInfinity)), w);
          };
        });
  }

  const AttentionBlock& block_;
  const AttentionWeights& to_;
  ScoreBlock scores_;
};

// Sixteen strided sums over at most 1024 weights at a time, then those in index
// order and in double: one order for every vector width.
HWY_INLINE double entropy(const float* weights, std::int64_t count) {
  const Tag d;
  constexpr int kSums = 16 / kVecLanes;
  constexpr std::int64_t kChunk = 1024;
  const auto term = [&](Vec w) HWY_ATTR {
    const Vec zero = hn::Zero(d);
    return hn::IfThenZeroElse(hn::Eq(w, zero), hn::Mul(w, hn::Log(d, w)));
  };
  double total = 0;
  for (std::int64_t from = 0; from < count; from += kChunk) {
    const std::int64_t to = std::min(count, from + kChunk);
    HWY_ALIGN float sums[16] = {};
    std::int64_t i = from;
    for (; i + 16 <= to; i += 16) {
      for (int j = 0; j < kSums; ++j) {
        float* const sum = sums + j * kVecLanes;
        hn::Store(hn::Add(hn::Load(d, sum),
                          term(hn::LoadU(d, weights + i + j * kVecLanes))),
                  d, sum);
      }
    }
    HWY_ALIGN float rest[16] = {};
    std::copy(weights + i, weights + to, rest);
    for (int j = 0; j < 16; j += kVecLanes) {
      hn::Store(hn::Add(hn::Load(d, sums + j), term(hn::Load(d, rest + j))), d,
                sums + j);
    }
    for (const float sum : sums) total -= static_cast<double>(sum);
  }
  return total;
}

HWY_INLINE std::int64_t first_above(const float* weights, std::int64_t from,
                                    std::int64_t count, float least) {
  const Tag d;
  const Vec limit = hn::Set(d, least);
  for (; from + kVecLanes <= count; from += kVecLanes) {
    const auto more = hn::Not(hn::Le(hn::LoadU(d, weights + from), limit));
    const std::int64_t first = hn::FindFirstTrue(d, more);
    if (first >= 0) return from + first;
  }
  while (from < count && weights[from] <= least) ++from;
  return from;
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
