// SPDX-License-Identifier: Apache-2.0
// From scores and their gradients' products to what the backward pass
// multiplies next.
#if defined(REGARD_KERNELS_BF16_DIFFERENTIATE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_BF16_DIFFERENTIATE_INL_H_
#undef REGARD_KERNELS_BF16_DIFFERENTIATE_INL_H_
#else
#define REGARD_KERNELS_BF16_DIFFERENTIATE_INL_H_
#endif

#include <cstring>

#include "kernels/bf16/passes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE void store_pair(Vec low, Vec high, Bf16Bits* to) {
  const UTag du;
  const auto pair =
      hn::Or(hn::ShiftRight<16>(round_to_bf16(low)),
             hn::And(round_to_bf16(high), hn::Set(du, 0xffff0000u)));
  hn::Store(pair, du, reinterpret_cast<std::uint32_t*>(to));
}

class Differentiator {
 public:
  HWY_INLINE explicit Differentiator(const Bf16Differential& job)
      : job_(job), strip_(*job.strip), block_(*job.modifier->block) {}

  HWY_INLINE void run_slot(int slot) {
    const std::int64_t group = strip_.groups[slot];
    if (block_.dropout_threshold != 0) {
      for (int block = 0; block < 2; ++block) {
        draw_kept(*job_.modifier, block, group, kept_[block]);
      }
    }
    const std::int64_t at = group - job_.first_group;
    Bf16Bits* const weights = job_.weights + at * job_.right_stride;
    Bf16Bits* const d_keys = job_.d_keys + at * job_.right_stride;
    Bf16Bits* const left = job_.d_queries + at * 2 * kTileBf16;
    HWY_ALIGN float p[2][kGroupKeys], k[2][kGroupKeys], q[2][kGroupKeys];
    for (int pair = 0; pair < 16; ++pair) {
      for (int block = 0; block < 2; ++block) {
        run_row(slot, block, pair, p[block], k[block], q[block]);
        // A row's keys c and c + 16 are a pair.
        for (int c = 0; c < 16; c += kBf16Lanes) {
          const Tag d;
          store_pair(hn::Load(d, q[block] + c), hn::Load(d, q[block] + c + 16),
                     left + block * kTileBf16 + pair * 32 + c * 2);
        }
      }
      // Rows r and r + 16 are a pair, for every key.
      for (int c = 0; c < kGroupKeys; c += kBf16Lanes) {
        const Tag d;
        const int to = c / 16 * kTileBf16 + pair * 32 + c % 16 * 2;
        store_pair(hn::Load(d, p[0] + c), hn::Load(d, p[1] + c), weights + to);
        store_pair(hn::Load(d, k[0] + c), hn::Load(d, k[1] + c), d_keys + to);
      }
    }
  }

 private:
  // One row against one group: the weights as the values were multiplied with
  // them, then the gradients of the scores as keys and as queries want them.
  HWY_INLINE void run_row(int slot, int block, int in_block, float* weights,
                          float* for_keys, float* for_queries) {
    const Tag d;
    const int r = block * 16 + in_block;
    if (strip_.shown[slot][block] == Shown::kNone) {
      std::memset(weights, 0, sizeof(float) * kGroupKeys);
      std::memset(for_keys, 0, sizeof(float) * kGroupKeys);
      std::memset(for_queries, 0, sizeof(float) * kGroupKeys);
      return;
    }
    const std::int64_t key = strip_.groups[slot] * kGroupKeys;
    const int tile = slot * kGroupFloats + block * 2 * kTileFloats;
    const Exp2Base exp2(hn::Zero(d));
    const Vec log2_sum = hn::Set(d, job_.log2_sums[r]);
    const Vec delta = hn::Set(d, job_.deltas[r]);
    const Vec scale = hn::Set(d, job_.scales[r]);
    const Vec keep = hn::Set(d, block_.keep_scale);
    HWY_ALIGN float added[kGroupKeys];
    for (int c = 0; c < kGroupKeys; c += kBf16Lanes) {
      const int at = tile + c / 16 * kTileFloats + in_block * 16 + c % 16;
      const Vec y = hn::Load(d, strip_.scores + at);
      const auto hidden = hn::Eq(y, hn::Set(d, -kInfinity));
      const Vec p =
          hn::IfThenElse(hidden, hn::Zero(d), exp2(hn::Sub(y, log2_sum)));
      Vec dp = hn::Load(d, job_.products + at);
      Vec w = p;
      if (block_.dropout_threshold != 0) {
        const auto stays = lanes_of(kept_[block][in_block], c);
        w = hn::IfThenElseZero(stays, hn::Mul(p, keep));
        dp = hn::IfThenElseZero(stays, hn::Mul(dp, keep));
      }
      // What has no weight has no gradient, whatever stands there.
      Vec ds = hn::IfThenElse(hn::Eq(p, hn::Zero(d)), hn::Zero(d),
                              hn::Mul(p, hn::Sub(dp, delta)));
      hn::Store(ds, d, added + c);
      if (job_.raw != nullptr) ds = hn::Mul(ds, cap_slope(at, r, key + c, ds));
      hn::Store(w, d, weights + c);
      // Scales and lengths of hidden vectors may be NaN.
      const auto nothing = hn::Eq(ds, hn::Zero(d));
      hn::Store(hn::IfThenElse(nothing, ds, hn::Mul(ds, scale)), d,
                for_keys + c);
      if (job_.modifier->key_norms != nullptr) {
        const Vec norm = hn::Load(d, job_.modifier->key_norms + key + c);
        ds = hn::IfThenElse(hn::Or(nothing, hn::Eq(norm, hn::Zero(d))),
                            hn::Zero(d), hn::Div(ds, norm));
      }
      hn::Store(ds, d, for_queries + c);
    }
    if (job_.wants_rows) add_to_row(r, key, added);
  }

  // No slope where there is no gradient.
  HWY_INLINE Vec cap_slope(int at, int r, std::int64_t key, Vec ds) const {
    const Tag d;
    const Vec score = scale_product(*job_.modifier, hn::Load(d, job_.raw + at),
                                    strip_.scale[r], key);
    const Vec slope = ScoreModifier(block_.score).slope(score);
    return hn::IfThenElse(hn::Eq(ds, hn::Zero(d)), hn::Zero(d), slope);
  }

  // Forward: score += bias - slope * |position - key|.
  HWY_INLINE void add_to_row(int r, std::int64_t key, const float* added) {
    const AttentionRow& row = *job_.modifier->rows[r];
    const std::int64_t n =
        HWY_MIN(std::int64_t{kGroupKeys}, job_.modifier->kv_len - key);
    float sum = 0, slope = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      sum += added[i];
      const float distance = row.alibi_position - static_cast<float>(key + i);
      slope += added[i] * (distance < 0 ? -distance : distance);
    }
    job_.row_sums[r] += sum;
    if (block_.score.has_alibi) job_.slopes[r] -= slope;
    float* const d_bias = job_.d_bias[r];
    if (d_bias == nullptr || block_.score.bias_key_stride == 0) return;
    for (std::int64_t i = 0; i < n; ++i) d_bias[key + i] += added[i];
  }

  const Bf16Differential& job_;
  const Bf16Strip& strip_;
  const AttentionBlock& block_;
  std::uint32_t kept_[2][16] = {};
};

void Differentiate(const Bf16Differential& job) {
  Differentiator differentiator(job);
  for (int slot = 0; slot < job.strip->slots; ++slot) {
    differentiator.run_slot(slot);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
