// SPDX-License-Identifier: Apache-2.0
// Where weights stand until they go to the caller: [key][row], as the passes
// make them.
#if defined(REGARD_KERNELS_KEPT_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_KEPT_WEIGHTS_INL_H_
#undef REGARD_KERNELS_KEPT_WEIGHTS_INL_H_
#else
#define REGARD_KERNELS_KEPT_WEIGHTS_INL_H_
#endif

#include <algorithm>

#include "kernels/attention_scores-inl.h"
#include "kernels/attention_weights.h"
#include "kernels/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

// Keys [begin, end) of a tile, [keys][kGroupRows], to rows.
HWY_INLINE void tile_to_rows(const float* tile, std::int64_t begin,
                             std::int64_t end, const AttentionWeights& to,
                             int count) {
  for (std::int64_t key = begin; key < end; key += kKeyBlock) {
    float* rows[kGroupRows];
    for (int r = 0; r < count; ++r) rows[r] = to.rows + r * to.stride + key;
    transpose_tile(tile + key * kGroupRows,
                   std::min<std::int64_t>(kKeyBlock, end - key), rows, count);
  }
}

// Keys [begin, end) from to.tile to where they go: for vector j of the rows,
// weigh_of(j) makes weights of what the tile holds.
template <typename WeighOf>
HWY_INLINE void put_weights(const AttentionWeights& to, int count,
                            std::int64_t begin, std::int64_t end,
                            const WeighOf& weigh_of) {
  const Tag d;
  const Vec share = hn::Set(d, to.share);
  for (std::int64_t first = begin; first < end; first += kKeyBlock) {
    const std::int64_t last = std::min<std::int64_t>(end, first + kKeyBlock);
    for (int j = 0; j * kVecLanes < count; ++j) {
      const auto weigh = weigh_of(j);
      float* at = to.tile + first * kGroupRows + j * kVecLanes;
      if (to.sums == nullptr) {
        for (std::int64_t i = first; i < last; ++i, at += kGroupRows) {
          hn::Store(weigh(hn::Load(d, at)), d, at);
        }
        continue;
      }
      float* sum = to.sums + first * kGroupRows + j * kVecLanes;
      for (std::int64_t i = first; i < last;
           ++i, at += kGroupRows, sum += kGroupRows) {
        hn::Store(hn::MulAdd(weigh(hn::Load(d, at)), share, hn::Load(d, sum)),
                  d, sum);
      }
    }
    if (to.sums == nullptr) tile_to_rows(to.tile, first, last, to, count);
  }
}

// The weights of keys [begin, end), which no row sees.
HWY_INLINE void put_zeros(const AttentionWeights& to, int count,
                          std::int64_t begin, std::int64_t end) {
  if (to.sums != nullptr || begin >= end) return;
  for (int r = 0; r < count; ++r) {
    float* const row = to.rows + r * to.stride;
    std::fill(row + begin, row + end, 0.0f);
  }
}

// 1 / sum; a row without a key has the sum 0 and the weights 0.
HWY_INLINE Vec weight_factor(Vec sum) {
  const Tag d;
  const Vec zero = hn::Zero(d);
  return hn::IfThenElse(hn::Eq(sum, zero), zero,
                        hn::Div(hn::Set(d, 1.0f), sum));
}

// The weights that a ForwardPass makes of one group of rows, kept until the
// rows' maxima and sums are known.
class KeptWeights {
 public:
  HWY_INLINE KeptWeights(const AttentionBlock& block,
                         const AttentionWeights& to)
      : block_(block), to_(to) {}

  // The weights of the scores' keys, below `max`.
  HWY_INLINE void keep(const ScoreBlock& scores, const float* max) {
    const Tag d;
    KeptKeys& keys = to_.kept[count_++];
    keys.begin = scores.first_key();
    keys.end = keys.begin + scores.keys();
    std::copy(max, max + kGroupRows, keys.max);
    for (int j = 0; j < scores.vecs(0); ++j) {
      const float* from = scores.scores() + j * kVecLanes;
      float* at = to_.tile + keys.begin * kGroupRows + j * kVecLanes;
      for (std::int64_t i = keys.begin; i < keys.end; ++i) {
        hn::Store(hn::Load(d, from), d, at);
        from += kGroupRows;
        at += kGroupRows;
      }
    }
  }

  // Below the rows' maxima, over their sums.
  HWY_INLINE void put(const float* max, const float* sum) const {
    const Tag d;
    std::int64_t done = 0;
    for (int i = 0; i < count_; ++i) {
      const KeptKeys& keys = to_.kept[i];
      put_zeros(to_, block_.row_count, done, keys.begin);
      put_weights(to_, block_.row_count, keys.begin, keys.end,
                  [&](int j) HWY_ATTR {
                    const int at = j * kVecLanes;
                    const Vec power = rescale_factor(
                        hn::LoadU(d, keys.max + at), hn::Load(d, max + at));
                    const Vec factor =
                        hn::Mul(weight_factor(hn::Load(d, sum + at)), power);
                    return [=](Vec w) HWY_ATTR { return hn::Mul(w, factor); };
                  });
      done = keys.end;
    }
    put_zeros(to_, block_.row_count, done, to_.keys);
  }

 private:
  const AttentionBlock& block_;
  const AttentionWeights& to_;
  int count_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
