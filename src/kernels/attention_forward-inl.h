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
  // careful: multiply only values whose weight is not zero, so that an infinite
  // or NaN value reaches no row that gives it no weight. The fast way
  // multiplies by zero; whoever finds its result not finite goes the careful
  // way. `kept`: takes the weights, before dropout; or null.
  HWY_INLINE ForwardPass(const AttentionBlock& block, ScoreBlock& scores,
                         bool careful, KeptWeights* kept)
      : block_(block), scores_(scores), careful_(careful), kept_(kept) {}

  HWY_INLINE void run_split(std::int64_t split, SplitState state) {
    const int groups = scores_.groups();
    for (int i = 0; i < groups * kGroupRows; ++i) {
      state.max[i] = -kInfinity;
      state.sum[i] = 0;
    }
    bool started[kMaxRows / kTileRows] = {};
    const std::int64_t first = std::max(split * kSplitKeys, scores_.begin());
    const std::int64_t last = std::min((split + 1) * kSplitKeys, scores_.end());
    for (std::int64_t key = first; key < last; key += kKeyBlock) {
      scores_.load_keys(key, std::min(last, key + kKeyBlock));
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
    const Tag d;
    Vec probe = hn::Zero(d);
    for (int i = 0; i < block_.row_count; i += kVecLanes) {
      HWY_ALIGN float factors[kVecLanes];
      const Vec sum = hn::Load(d, state.sum + i);
      // A row that sees no key has no distribution: define it as zero, because
      // 0 / 0 would spread NaN through everything that follows.
      const Vec zero = hn::Zero(d);
      const Vec factor = hn::IfThenElse(
          hn::Eq(sum, zero), zero, hn::Div(hn::Set(d, block_.keep_scale), sum));
      hn::Store(factor, d, factors);
      const int rows = std::min(kVecLanes, block_.row_count - i);
      for (int r = 0; r < rows; ++r) {
        const AttentionRow& row = block_.rows[i + r];
        const float* from = state.out + (i + r) * scores_.value_stride();
        switch (block_.keys.storage) {
          case Storage::kFloat32:
            write_row(from, factors[r], static_cast<float*>(row.out), probe);
            break;
          case Storage::kBFloat16:
            write_row(from, factors[r], static_cast<hwy::bfloat16_t*>(row.out),
                      probe);
            break;
          case Storage::kFloat16:
            write_row(from, factors[r], static_cast<hwy::float16_t*>(row.out),
                      probe);
            break;
        }
        if (row.lse != nullptr) {
          *row.lse = log_sum_exp(state.max[i + r], state.sum[i + r]);
        }
      }
    }
    return hn::AllFalse(d, hn::IsNaN(probe));
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
      Vec sum = hn::Mul(hn::Load(d, sum_at), factor);
      const Exp2Base exp2(max);
      if (exp2.small()) [[likely]] {
        HWY_UNROLL(4)
        for (std::int64_t i = from; i < to; ++i) {
          const Vec w = exp2(hn::Load(d, s + i * kGroupRows));
          hn::Store(w, d, s + i * kGroupRows);
          sum = hn::Add(sum, w);
        }
      } else {
        for (std::int64_t i = from; i < to; ++i) {
          const Vec w = exp2.any(hn::Load(d, s + i * kGroupRows));
          hn::Store(w, d, s + i * kGroupRows);
          sum = hn::Add(sum, w);
        }
      }
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
    constexpr std::int64_t kTileWidth = kTileColumns * kVecLanes;
    float* const out = state.out + g * kGroupRows * columns;
    for (int r = 0; r < rows; r += kTileRows) {
      if (!started[r / kTileRows]) continue;
      for (int i = r; i < std::min(rows, r + kTileRows); ++i) {
        if (factors_[i] != 1.0f) {
          scale_row(out + i * columns, columns, factors_[i]);
        }
      }
    }
    // Columns outermost: a strip of values stays in L1 over all rows.
    for (std::int64_t c = 0; c < columns; c += kTileWidth) {
      const auto vecs =
          static_cast<int>(std::min(kTileWidth, columns - c) / kVecLanes);
      for (int r = 0; r < rows; r += kTileRows) {
        const int tile = r / kTileRows;
        const auto [from, to] = scores_.tile_keys(tile);
        if (from >= to) continue;
        const ValueProduct product{
            .weights = scores_.scores() + from * kGroupRows + r,
            .v = scores_.values() + from * scores_.value_step() + c,
            .v_stride = scores_.value_step(),
            .inner = to - from,
            .out = out + r * columns + c,
            .out_stride = columns,
            .from_zero = !started[tile]};
        const int count = std::min(kTileRows, rows - r);
        if (careful_) {
          value_some_carefully<Weights::kInnerMajor>(count, vecs, product);
        } else {
          value_some<Weights::kInnerMajor>(count, vecs, product);
        }
      }
    }
    for (int r = 0; r < rows; r += kTileRows) {
      const auto [from, to] = scores_.tile_keys(r / kTileRows);
      started[r / kTileRows] |= from < to;
    }
  }

  template <typename T>
  HWY_INLINE void write_row(const float* from, float factor, T* to,
                            Vec& probe) const {
    const Tag d;
    const Vec f = hn::Set(d, factor);
    const std::int64_t n = block_.keys.d_v;
    // Zero even where a value was NaN: see write().
    const bool empty = factor == 0;
    const auto result = [&](std::int64_t c) HWY_ATTR {
      const Vec sum = hn::Load(d, from + c);
      // Infinity times zero is NaN. All bits of a NaN's exponent are set, and
      // stay set.
      probe = hn::Or(probe, hn::Mul(sum, hn::Zero(d)));
      return empty ? hn::Zero(d) : hn::Mul(sum, f);
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
                              0.6931471805599453);
  }

  const AttentionBlock& block_;
  ScoreBlock& scores_;
  const bool careful_;
  KeptWeights* const kept_;
  HWY_ALIGN float factors_[kGroupRows] = {};
};

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
