// SPDX-License-Identifier: Apache-2.0
// Which weights of a vector of rows are dropped, key after key.
#if defined(REGARD_KERNELS_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_DROPOUT_INL_H_
#undef REGARD_KERNELS_DROPOUT_INL_H_
#else
#define REGARD_KERNELS_DROPOUT_INL_H_
#endif

#include <cstdint>

#include "kernels/attention_scores-inl.h"
#include "kernels/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

// A draw gives the words of four keys: counter {key / 4, query, head, batch}.
class DropoutDraw {
 public:
  // For vector j of group g of `scores`.
  HWY_INLINE DropoutDraw(const AttentionBlock& block, const ScoreBlock& scores,
                         int g, int j)
      : seed_(block.dropout_seed), threshold_(block.dropout_threshold) {
    if (threshold_ == 0) return;
    for (int r = 0; r < kVecLanes; ++r) {
      const AttentionRow& row = scores.row(g * kGroupRows + j * kVecLanes + r);
      for (int i = 0; i < 3; ++i) counter_[i][r] = row.dropout_counter[i];
    }
  }

  HWY_INLINE hn::Mask<Tag> dropped(std::int64_t key) {
    const UTag du;
    if (key / 4 != quad_) {
      quad_ = key / 4;
      PhiloxWords words;
      words.word[0] = hn::Set(du, static_cast<std::uint32_t>(quad_));
      for (int i = 0; i < 3; ++i) {
        words.word[i + 1] = hn::Load(du, counter_[i]);
      }
      words = philox(words, seed_);
      for (int i = 0; i < 4; ++i) hn::Store(words.word[i], du, words_[i]);
    }
    return hn::RebindMask(
        Tag(), hn::Lt(hn::Load(du, words_[key % 4]), hn::Set(du, threshold_)));
  }

 private:
  const std::uint64_t seed_;
  const std::uint32_t threshold_;
  std::int64_t quad_ = -1;
  HWY_ALIGN std::uint32_t counter_[3][kVecLanes];
  HWY_ALIGN std::uint32_t words_[4][kVecLanes];
};

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
