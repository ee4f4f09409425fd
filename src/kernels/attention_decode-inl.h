// SPDX-License-Identifier: Apache-2.0
#if defined(REGARD_KERNELS_ATTENTION_DECODE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_ATTENTION_DECODE_INL_H_
#undef REGARD_KERNELS_ATTENTION_DECODE_INL_H_
#else
#define REGARD_KERNELS_ATTENTION_DECODE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/attention_decode.h"
#include "kernels/attention_decode_memory.h"
#include "kernels/attention_decode_tiles-inl.h"
#include "kernels/attention_scores-inl.h"
#include "kernels/tiles-inl.h"
#include "kernels/unit_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

// One split of up to kDecodeRows rows.
template <typename T>
class DecodePass {
 public:
  HWY_INLINE DecodePass(const DecodeSplit& split, int first_row, float* state)
      : split_(split),
        layout_(split.layout),
        rows_(split.rows + first_row),
        row_count_(std::min(kDecodeRows, split.row_count - first_row)),
        columns_(layout_.columns()),
        memory_(split.scratch, layout_),
        state_(state + first_row * DecodeState::floats(columns_)) {}

  HWY_INLINE void run() {
    for (int b = 0; b < split_.block_count; ++b) lanes_[b] = lanes_of(b);
    pack_queries();
    const int whole = row_count_ / kDecodeTileRows * kDecodeTileRows;
    for (int r = 0; r < whole; r += kDecodeTileRows) {
      score_rows<kDecodeTileRows>(r);
    }
    with_rest([&](auto rows)
                  HWY_ATTR { score_rows<decltype(rows)::value>(whole); });
    for (int r = 0; r < row_count_; ++r) weigh(r);
    add_values();
    for (int r = 0; r < row_count_; ++r) finish_row(r);
  }

 private:
  static constexpr bool kIsInt8 = std::is_same_v<T, std::int8_t>;

  template <typename Body>
  HWY_INLINE void with_rest(const Body& body) {
    switch (row_count_ % kDecodeTileRows) {
      case 3:
        return body(std::integral_constant<int, 3>());
      case 2:
        return body(std::integral_constant<int, 2>());
      case 1:
        return body(std::integral_constant<int, 1>());
    }
  }

  static HWY_INLINE LaneRange clip(std::int64_t begin, std::int64_t end,
                                   std::int64_t first_key) {
    const std::int64_t from =
        std::clamp<std::int64_t>(begin - first_key, 0, kBlockKeys);
    return {from, std::clamp<std::int64_t>(end - first_key, from, kBlockKeys)};
  }

  // From the first to the last lane that some row sees: the others may never
  // have been written.
  HWY_INLINE LaneRange lanes_of(int b) const {
    LaneRange hull{kBlockKeys, 0};
    const std::int64_t key = split_.blocks[b].first_key;
    const auto add = [&hull](LaneRange seen) HWY_ATTR {
      if (seen.begin >= seen.end) return;
      hull.begin = std::min(hull.begin, seen.begin);
      hull.end = std::max(hull.end, seen.end);
    };
    for (int r = 0; r < row_count_; ++r) {
      add(clip(rows_[r].begin, rows_[r].end, key));
      add(clip(rows_[r].early_begin, rows_[r].early_end, key));
    }
    return hull;
  }

  // As pack_queries of attention_scores-inl.h.
  HWY_INLINE void pack_queries() {
    for (int r = 0; r < row_count_; ++r) {
      const DecodeRow& row = rows_[r];
      const UnitFactors unit = split_.score.cosine
                                   ? unit_factors(row.q, layout_.d_k)
                                   : UnitFactors();
      const float scale = row.scale * kLog2E * unit.inverse;
      float* const to = memory_.queries + r * layout_.d_k;
      for (std::int64_t c = 0; c < layout_.d_k; ++c) {
        to[c] = row.q[c] * unit.scale * scale;
      }
    }
  }

  template <int kRows>
  HWY_INLINE void score_rows(int first) {
    constexpr int kBlocks = score_tile_blocks<kRows>();
    const int last = split_.block_count - 1;
    const int ahead = blocks_ahead(layout_.k_bytes());
    static_assert(kBlocks <= kChainBlocks);
    for (int b = 0; b <= last; b += kBlocks) {
      TileKeys<T, kBlocks> keys;
      // Where blocks run out the last is scored again and not looked at.
      for (int i = 0; i < kBlocks; ++i) {
        keys.now[i] =
            reinterpret_cast<const T*>(split_.blocks[std::min(b + i, last)].k);
        const int next = b + i + ahead;
        keys.next[i] = next <= last
                           ? split_.blocks[next].k
                           : split_.blocks[std::min(next - last - 1, last)].v;
        if constexpr (kIsInt8) {
          if (next <= last) {
            fetch(k_scales(next));
            fetch(v_scales(next));
          }
        }
      }
      const float* const q = memory_.queries + first * layout_.d_k;
      float* const to = memory_.weights + first * kScoreStride + b * kBlockKeys;
      if (split_.score.cosine) {
        KeyNorms norms[kBlocks];
        for (int i = 0; i < kBlocks; ++i) {
          measure_keys(keys.now[i], layout_.d_k, norms[i]);
        }
        decode_score_tile<T, kRows, kBlocks, true>(q, layout_.d_k, keys, norms,
                                                   to);
      } else {
        decode_score_tile<T, kRows, kBlocks, false>(q, layout_.d_k, keys,
                                                    nullptr, to);
      }
    }
  }

  // scores -> weights of row r, and their sum; those of int8 values are then
  // multiplied by the scales.
  HWY_INLINE void weigh(int r) {
    const Tag d;
    float* const w = memory_.weights + r * kScoreStride;
    const int count = split_.block_count * kBlockKeys;
    Vec max = hn::Set(d, -kInfinity);
    for (int b = 0; b < split_.block_count; ++b) {
      finish_scores(r, b);
      for (int i = 0; i < kBlockKeys; i += kVecLanes) {
        // In this order a NaN is not taken in.
        max = hn::Max(hn::Load(d, w + b * kBlockKeys + i), max);
      }
    }
    max = round_max(hn::MaxOfLanes(d, max));
    maxima_[r] = hn::GetLane(max);
    const Exp2Base exp2(max);
    if (exp2.small()) [[likely]] {
      for (int i = 0; i < count; i += kVecLanes) {
        hn::Store(exp2(hn::Load(d, w + i)), d, w + i);
      }
    } else {
      for (int i = 0; i < count; i += kVecLanes) {
        hn::Store(exp2.any(hn::Load(d, w + i)), d, w + i);
      }
    }
    sums_[r] = sum_of(w);
    if constexpr (kIsInt8) {
      for (int i = 0; i < count; i += kVecLanes) {
        const Vec weight = hn::Load(d, w + i);
        const Vec scale =
            hn::Load(d, v_scales(i / kBlockKeys) + i % kBlockKeys);
        // A hidden value's scale may be NaN, or never have been written.
        hn::Store(hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)),
                                     hn::Mul(weight, scale)),
                  d, w + i);
      }
    }
  }

  // The sum of a row's weights, in the order of weigh_keys and its blocks.
  HWY_INLINE float sum_of(const float* w) const {
    const hn::FixedTag<float, 4> d4;
    float sum = 0;
    auto chains = hn::Zero(d4);
    for (int b = 0; b < split_.block_count; ++b) {
      for (int i = 0; i < kBlockKeys; i += 4) {
        chains = hn::Add(chains, hn::Load(d4, w + b * kBlockKeys + i));
      }
      if (!ends<kKeyBlock>(split_.blocks, b, split_.block_count)) continue;
      HWY_ALIGN float chain[4];
      hn::Store(chains, d4, chain);
      sum += (chain[0] + chain[1]) + (chain[2] + chain[3]);
      chains = hn::Zero(d4);
    }
    return sum;
  }

  const float* k_scales(int b) const {
    return reinterpret_cast<const float*>(split_.blocks[b].k +
                                          layout_.k_scales());
  }
  const float* v_scales(int b) const {
    return reinterpret_cast<const float*>(split_.blocks[b].v +
                                          layout_.v_scales());
  }

  // Scales of int8, softcap, bias, ALiBi and the mask, in this order.
  HWY_INLINE void finish_scores(int r, int b) {
    const DecodeRow& row = rows_[r];
    const DecodeBlock& block = split_.blocks[b];
    const LaneRange seen = clip(row.begin, row.end, block.first_key);
    const bool full = seen.begin == 0 && seen.end == kBlockKeys;
    const bool modified = split_.score.change_products();
    const Tag d;
    if (full && !modified && !(kIsInt8 && split_.score.cosine)) {
      if constexpr (kIsInt8) {
        float* const scores =
            memory_.weights + r * kScoreStride + b * kBlockKeys;
        for (int i = 0; i < kBlockKeys; i += kVecLanes) {
          hn::Store(
              hn::Mul(hn::Load(d, scores + i), hn::Load(d, k_scales(b) + i)), d,
              scores + i);
        }
      }
      return;
    }
    const LaneRange early =
        clip(row.early_begin, row.early_end, block.first_key);
    const auto lane = [&](std::int64_t n) HWY_ATTR {
      return hn::Set(d, static_cast<float>(n));
    };
    const ScoreModifier modify(split_.score);
    HWY_ALIGN float bias[kBlockKeys];
    if (split_.score.has_bias) load_bias(row, block, bias);
    for (int i = 0; i < kBlockKeys; i += kVecLanes) {
      float* const at = memory_.weights + r * kScoreStride + b * kBlockKeys + i;
      Vec s = hn::Load(d, at);
      const Vec key = hn::Iota(d, static_cast<float>(i));
      if constexpr (kIsInt8) {
        const Vec scale = hn::Load(d, k_scales(b) + i);
        // The scale of a key does not change its direction, but may be NaN.
        s = hn::Mul(s, split_.score.cosine
                           ? hn::Add(hn::Sub(scale, scale), hn::Set(d, 1.0f))
                           : scale);
      }
      s = modify(
          s, [&]() HWY_ATTR { return hn::Load(d, bias + i); },
          hn::Set(d, row.alibi_slope * kLog2E),
          lane(row.position - block.first_key), key);
      if (!full) {
        const auto now =
            hn::And(hn::Le(lane(seen.begin), key), hn::Lt(key, lane(seen.end)));
        const auto before = hn::And(hn::Le(lane(early.begin), key),
                                    hn::Lt(key, lane(early.end)));
        s = hide_unless(hn::Or(now, before), s);
      }
      hn::Store(s, d, at);
    }
  }

  // The bias of a block's keys; nothing is read beyond the last key seen.
  HWY_INLINE void load_bias(const DecodeRow& row, const DecodeBlock& block,
                            float* to) const {
    const std::int64_t end = std::max(row.end, row.early_end);
    for (std::int64_t i = 0; i < kBlockKeys; ++i) {
      const std::int64_t key = block.first_key + i;
      to[i] = key < end ? row.bias[key * split_.score.bias_key_stride] : 0;
    }
  }

  HWY_INLINE DecodeValues values_of(int r) const {
    return {.blocks = split_.blocks,
            .lanes = lanes_,
            .block_count = split_.block_count,
            .v_stride = columns_,
            .column = 0,
            .weights = memory_.weights + r * kScoreStride,
            .key_block = memory_.key_block + r * columns_,
            .out = memory_.out + r * columns_,
            .starts_block = true,
            .ends_block = true,
            .starts_split = true};
  }

  // Chain by chain: its few keys stay near while all rows pass.
  HWY_INLINE void add_values() {
    const int whole = row_count_ / kDecodeTileRows * kDecodeTileRows;
    if (split_.block_count == 0) {
      std::memset(memory_.out, 0, sizeof(float) * row_count_ * columns_);
    }
    Chain chain;
    for (int b = 0; b < split_.block_count; b += chain.count) {
      chain.first = b;
      chain.count = 1;
      while (!ends<kChainKeys>(split_.blocks, b + chain.count - 1,
                               split_.block_count)) {
        ++chain.count;
      }
      chain.ends_block = ends<kKeyBlock>(split_.blocks, b + chain.count - 1,
                                         split_.block_count);
      for (int r = 0; r < whole; r += kDecodeTileRows) {
        add_rows<kDecodeTileRows>(r, chain);
      }
      with_rest([&](auto rows) HWY_ATTR {
        add_rows<decltype(rows)::value>(whole, chain);
      });
      chain.starts_split = chain.starts_split && !chain.ends_block;
      chain.starts_block = chain.ends_block;
    }
  }

  // Blocks of one chain, and the place of the chain in its block of keys.
  struct Chain {
    int first = 0, count = 1;
    bool starts_block = true, ends_block = false, starts_split = true;
  };

  template <int kRows>
  HWY_INLINE void add_rows(int r, const Chain& chain) {
    DecodeValues p = values_of(r);
    p.blocks += chain.first;
    p.lanes += chain.first;
    p.weights += chain.first * kBlockKeys;
    p.block_count = chain.count;
    p.starts_block = chain.starts_block;
    p.ends_block = chain.ends_block;
    p.starts_split = chain.starts_split;
    ValueFetch ahead{
        split_.blocks, chain.first + blocks_ahead(layout_.v_bytes()),
        split_.block_count - 1, 0,
        static_cast<std::size_t>(kBlockKeys * columns_) * sizeof(T)};
    decode_value_columns<T, kRows, value_tile_columns<kRows>()>(
        p, columns_ / kVecLanes, ahead);
  }

  HWY_INLINE void finish_row(int r) {
    const Tag d;
    float* const out = memory_.out + r * columns_;
    Vec probe = hn::Zero(d);
    for (std::int64_t c = 0; c < columns_; c += kVecLanes) {
      // Infinity times zero is NaN, and NaN stays.
      probe = hn::MulAdd(hn::Load(d, out + c), hn::Zero(d), probe);
    }
    if (!hn::AllFalse(d, hn::IsNaN(probe))) {
      decode_values_skipping_zeros<T>(values_of(r));
    }
    const DecodeState state(state_ + r * DecodeState::floats(columns_),
                            columns_);
    *state.max = maxima_[r];
    *state.sum = sums_[r];
    std::memcpy(state.out, out, sizeof(float) * columns_);
  }

  const DecodeSplit& split_;
  const KVLayout& layout_;
  const DecodeRow* const rows_;
  const int row_count_;
  const std::int64_t columns_;
  const DecodeScratch memory_;
  float* const state_;
  LaneRange lanes_[kSplitBlocks];
  float maxima_[kDecodeRows];
  float sums_[kDecodeRows];
};

// into <- into and from, in this order, as ForwardPass::merge does.
HWY_INLINE void merge_states(DecodeState into, DecodeState from,
                             std::int64_t columns) {
  const Tag d;
  const Vec a = hn::Set(d, *into.max);
  const Vec b = hn::Set(d, *from.max);
  const Vec max = hn::Max(a, b);
  const Vec x = rescale_factor(a, max);
  const Vec y = rescale_factor(b, max);
  const Vec sum =
      hn::MulAdd(hn::Set(d, *from.sum), y, hn::Mul(hn::Set(d, *into.sum), x));
  *into.max = hn::GetLane(max);
  *into.sum = hn::GetLane(sum);
  for (std::int64_t c = 0; c < columns; c += kVecLanes) {
    hn::Store(hn::MulAdd(hn::Load(d, from.out + c), y,
                         hn::Mul(hn::Load(d, into.out + c), x)),
              d, into.out + c);
  }
}

HWY_INLINE void add_sink(DecodeState state, float logit, std::int64_t columns) {
  const Tag d;
  const Vec sink = hn::Mul(hn::Set(d, logit), hn::Set(d, kLog2E));
  const Vec before = hn::Set(d, *state.max);
  const Vec max = hn::Max(before, round_max(sink));
  const Vec factor = rescale_factor(before, max);
  const Exp2Base exp2(max);
  const Vec sum = hn::MulAdd(hn::Set(d, *state.sum), factor, exp2.any(sink));
  *state.max = hn::GetLane(max);
  *state.sum = hn::GetLane(sum);
  if (hn::GetLane(factor) == 1.0f) return;
  for (std::int64_t c = 0; c < columns; c += kVecLanes) {
    hn::Store(hn::Mul(hn::Load(d, state.out + c), factor), d, state.out + c);
  }
}

// A row that sees no key has no distribution: define it as zero, because 0 / 0
// would spread NaN through everything that follows.
HWY_INLINE void write_row(DecodeState state, const DecodeRow& row,
                          std::int64_t d_v) {
  const Tag d;
  const float sum = *state.sum;
  const Vec divisor = hn::Set(d, sum);
  std::int64_t c = 0;
  HWY_ALIGN float last[kVecLanes];
  for (; c < d_v; c += kVecLanes) {
    const Vec x =
        sum == 0 ? hn::Zero(d) : hn::Div(hn::Load(d, state.out + c), divisor);
    if (c + kVecLanes <= d_v) {
      hn::StoreU(x, d, row.out + c);
    } else {
      hn::Store(x, d, last);
      std::memcpy(row.out + c, last, sizeof(float) * (d_v - c));
    }
  }
  if (row.lse == nullptr) return;
  *row.lse =
      sum == 0 ? -kInfinity
               : static_cast<float>(
                     (std::log2(static_cast<double>(sum)) + *state.max) * kLn2);
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
