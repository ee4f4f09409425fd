// SPDX-License-Identifier: Apache-2.0
#if defined(REGARD_KERNELS_ATTENTION_FORWARD_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_ATTENTION_FORWARD_INL_H_
#undef REGARD_KERNELS_ATTENTION_FORWARD_INL_H_
#else
#define REGARD_KERNELS_ATTENTION_FORWARD_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/attention_forward.h"
#include "kernels/attention_scores-inl.h"
#include "kernels/dropout-inl.h"
#include "kernels/kept_weights-inl.h"
#include "kernels/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

// The result of one split, or of several merged: for each row the rounded
// maximum m of its scores (in log2), the sum of 2^(score - m), and the sum of
// those times the values, [rows][columns]. Rows are padded to whole groups.
struct SplitState {
  float* max;
  float* sum;
  float* out;

  HWY_INLINE SplitState(float* memory, int padded_rows)
      : max(memory), sum(memory + padded_rows), out(memory + 2 * padded_rows) {}
};

class ForwardPass {
 public:
  // skip_zeros: multiply only values whose weight is not zero, so that an
  // infinite or NaN value reaches no row that gives it no weight. It is slow:
  // whoever finds the result of the other way not finite runs again with it.
  // `kept`: takes the weights, before dropout; or null.
  HWY_INLINE ForwardPass(const AttentionBlock& block, ScoreBlock& scores,
                         bool skip_zeros, KeptWeights* kept)
      : block_(block), scores_(scores), skip_zeros_(skip_zeros), kept_(kept) {}

  HWY_INLINE void run_split(std::int64_t split, SplitState state) {
    const int groups = scores_.groups();
    for (int i = 0; i < groups * kGroupRows; ++i) {
      state.max[i] = -kInfinity;
      state.sum[i] = 0;
    }
    bool started[kMaxRows / kTileRows] = {};
    const std::int64_t first = std::max(split * kSplitKeys, scores_.begin());
    const std::int64_t last = std::min((split + 1) * kSplitKeys, scores_.end());
    for (std::int64_t key = first; key < last; key = key_block_end(key)) {
      scores_.load_keys(key, std::min(last, key_block_end(key)));
      for (int g = 0; g < groups; ++g) {
        if (!scores_.compute(g)) continue;
        weigh(g, state);
        if (kept_ != nullptr) kept_->keep(scores_, state.max);  // one group
        if (block_.dropout_threshold != 0) drop(g);
        add_values(g, state, started + g * (kGroupRows / kTileRows));
      }
    }
    const std::int64_t columns = scores_.value_stride();
    const int tiles = (block_.row_count + kTileRows - 1) / kTileRows;
    for (int tile = 0; tile < tiles; ++tile) {
      if (started[tile]) continue;
      std::memset(state.out + tile * kTileRows * columns, 0,
                  sizeof(float) * kTileRows * columns);
    }
  }

  // into <- into and from, in this order.
  HWY_INLINE void merge(SplitState into, SplitState from) const {
    const Tag d;
    const std::int64_t columns = scores_.value_stride();
    const int rows = scores_.groups() * kGroupRows;
    for (int i = 0; i < rows; i += kVecLanes) {
      HWY_ALIGN float keep[kVecLanes], take[kVecLanes];
      const Vec a = hn::Load(d, into.max + i);
      const Vec b = hn::Load(d, from.max + i);
      const Vec max = hn::Max(a, b);
      const Vec x = rescale_factor(a, max);
      const Vec y = rescale_factor(b, max);
      const Vec sum = hn::MulAdd(hn::Load(d, from.sum + i), y,
                                 hn::Mul(hn::Load(d, into.sum + i), x));
      hn::Store(max, d, into.max + i);
      hn::Store(sum, d, into.sum + i);
      hn::Store(x, d, keep);
      hn::Store(y, d, take);
      for (int r = 0; r < kVecLanes; ++r) {
        float* to = into.out + (i + r) * columns;
        const float* more = from.out + (i + r) * columns;
        const Vec vx = hn::Set(d, keep[r]);
        const Vec vy = hn::Set(d, take[r]);
        for (std::int64_t c = 0; c < columns; c += kVecLanes) {
          hn::Store(hn::MulAdd(hn::Load(d, more + c), vy,
                               hn::Mul(hn::Load(d, to + c), vx)),
                    d, to + c);
        }
      }
    }
  }

  // Adds the sinks to the denominators.
  HWY_INLINE void add_sinks(SplitState state) const {
    const Tag d;
    for (int i = 0; i < block_.row_count; i += kVecLanes) {
      HWY_ALIGN float sinks[kVecLanes];
      for (int r = 0; r < kVecLanes; ++r) {
        sinks[r] = scores_.row(i + r).sink;
      }
      const Vec sink = hn::Mul(hn::Load(d, sinks), hn::Set(d, kLog2E));
      const Vec before = hn::Load(d, state.max + i);
      const Vec max = hn::Max(before, round_max(sink));
      const Vec factor = rescale_factor(before, max);
      const Exp2Base exp2(max);
      const Vec sum =
          hn::MulAdd(hn::Load(d, state.sum + i), factor, exp2.any(sink));
      hn::Store(max, d, state.max + i);
      hn::Store(sum, d, state.sum + i);
      HWY_ALIGN float factors[kVecLanes];
      hn::Store(factor, d, factors);
      const std::int64_t columns = scores_.value_stride();
      for (int r = 0; r < kVecLanes; ++r) {
        if (factors[r] == 1.0f) continue;
        scale_row(state.out + (i + r) * columns, columns, factors[r]);
      }
    }
  }

  // Writes out and lse; false if some sum was not finite.
  HWY_INLINE bool write(SplitState state) const {
    bool finite = true;
    // All rows in one call: what it captures would not stay in registers.
    with_storage(block_.keys.storage, [&]<typename T>(T*) HWY_ATTR {
      const Tag d;
      Vec probe = hn::Zero(d);
      for (int r = 0; r < block_.row_count; ++r) {
        const AttentionRow& row = block_.rows[r];
        const float sum = state.sum[r];
        write_row(state.out + r * scores_.value_stride(), sum,
                  static_cast<T*>(row.out), probe);
        if (row.lse != nullptr) *row.lse = log_sum_exp(state.max[r], sum);
      }
      finite = hn::AllFalse(d, hn::IsNaN(probe));
    });
    return finite;
  }

 private:
  static HWY_INLINE void scale_row(float* row, std::int64_t columns,
                                   float factor) {
    const Tag d;
    const Vec f = hn::Set(d, factor);
    for (std::int64_t c = 0; c < columns; c += kVecLanes) {
      hn::Store(hn::Mul(hn::Load(d, row + c), f), d, row + c);
    }
  }

  // scores -> weights; the running maximum and sum of each row.
  HWY_INLINE void weigh(int g, SplitState state) {
    const Tag d;
    for (int j = 0; j < scores_.vecs(g); ++j) {
      float* max_at = state.max + g * kGroupRows + j * kVecLanes;
      float* sum_at = state.sum + g * kGroupRows + j * kVecLanes;
      float* const s = scores_.scores() + j * kVecLanes;
      const auto [from, to] = scores_.vec_keys(j);
      const std::int64_t keys = scores_.keys();
      for (std::int64_t i = 0; i < from; ++i) {
        hn::Store(hn::Zero(d), d, s + i * kGroupRows);
      }
      for (std::int64_t i = to; i < keys; ++i) {
        hn::Store(hn::Zero(d), d, s + i * kGroupRows);
      }
      const Vec before = hn::Load(d, max_at);
      const Vec max = hn::Max(
          round_max(hn::Load(d, scores_.max() + j * kVecLanes)), before);
      const Vec factor = rescale_factor(before, max);
      const Vec block =
          weigh_keys(Exp2Base(max), s, {from, to}, scores_.first_key(),
                     [&](std::int64_t i, Vec w)
                         HWY_ATTR { hn::Store(w, d, s + i * kGroupRows); });
      const Vec sum = hn::MulAdd(hn::Load(d, sum_at), factor, block);
      hn::Store(max, d, max_at);
      hn::Store(sum, d, sum_at);
      hn::Store(factor, d, factors_ + j * kVecLanes);
    }
  }

  HWY_INLINE void drop(int g) {
    const Tag d;
    for (int j = 0; j < scores_.vecs(g); ++j) {
      DropoutDraw draw(block_, scores_, g, j);
      const auto [from, to] = scores_.vec_keys(j);
      for (std::int64_t i = from; i < to; ++i) {
        float* w = scores_.scores() + i * kGroupRows + j * kVecLanes;
        hn::Store(hn::IfThenZeroElse(draw.dropped(scores_.first_key() + i),
                                     hn::Load(d, w)),
                  d, w);
      }
    }
  }

  HWY_INLINE void add_values(int g, SplitState state, bool* started) {
    const std::int64_t columns = scores_.value_stride();
    const int rows = std::min(kGroupRows, block_.row_count - g * kGroupRows);
    float* const out = state.out + g * kGroupRows * columns;
    for (int r = 0; r < rows; r += kTileRows) {
      if (!started[r / kTileRows]) continue;
      for (int i = r; i < std::min(rows, r + kTileRows); ++i) {
        if (factors_[i] != 1.0f) {
          scale_row(out + i * columns, columns, factors_[i]);
        }
      }
    }
    const KeyBlockProduct product{.weights = scores_.scores(),
                                  .v = scores_.values(),
                                  .v_stride = scores_.value_step(),
                                  .first_key = scores_.first_key(),
                                  .keys = scores_.keys(),
                                  .rows = rows,
                                  .columns = columns,
                                  .out = out,
                                  .waiting = scores_.waiting(),
                                  .skip_zeros = skip_zeros_};
    product.run([&](int tile) HWY_ATTR { return scores_.tile_keys(tile); },
                [&](int tile) HWY_ATTR { return started[tile]; });
    for (int r = 0; r < rows; r += kTileRows) {
      const auto [from, to] = scores_.tile_keys(r / kTileRows);
      started[r / kTileRows] |= from < to;
    }
  }

  template <typename T>
  HWY_INLINE void write_row(const float* from, float sum, T* to,
                            Vec& probe) const {
    const Tag d;
    const Vec divisor = hn::Set(d, sum);
    const Vec keep_scale = hn::Set(d, block_.keep_scale);
    const std::int64_t n = block_.keys.d_v;
    const auto result = [&](std::int64_t c) HWY_ATTR {
      const Vec weighted = hn::Load(d, from + c);
      // Infinity times zero is NaN. All bits of a NaN's exponent are set, and
      // stay set.
      probe = hn::Or(probe, hn::Mul(weighted, hn::Zero(d)));
      // A row that sees no key has no distribution: define it as zero, because
      // 0 / 0 would spread NaN through everything that follows.
      if (sum == 0) return hn::Zero(d);
      return hn::Div(hn::Mul(weighted, keep_scale), divisor);
    };
    std::int64_t c = 0;
    for (; c + kVecLanes <= n; c += kVecLanes) store_float(result(c), to + c);
    if (c < n) {
      T last[kVecLanes];
      store_float(result(c), last);
      std::memcpy(to + c, last, sizeof(T) * (n - c));
    }
  }

  static float log_sum_exp(float max, float sum) {
    if (sum == 0) return -kInfinity;
    return static_cast<float>((std::log2(static_cast<double>(sum)) + max) *
                              kLn2);
  }

  const AttentionBlock& block_;
  ScoreBlock& scores_;
  const bool skip_zeros_;
  KeptWeights* const kept_;
  HWY_ALIGN float factors_[kGroupRows] = {};
};

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
