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
#include "kernels/attention_scores-inl.h"
#include "kernels/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

inline constexpr int kBlockVecs = kBlockKeys / kVecLanes;
static_assert(kBlockKeys % kVecLanes == 0);

// Register tiles that leave room for what they multiply: of 32, or 16.
template <int kRows>
constexpr int score_tile_blocks() {
  constexpr int kSums = HWY_TARGET == HWY_AVX2 ? 8 : 16;
  const int blocks = kSums / (kRows * kBlockVecs);
  return blocks >= kMostTileBlocks ? kMostTileBlocks : blocks < 1 ? 1 : blocks;
}
template <int kRows>
constexpr int value_tile_columns() {
  if (HWY_TARGET == HWY_AVX2) return kRows == 1 ? 8 : kRows == 2 ? 4 : 2;
  return kRows <= 2 ? 8 : 4;
}

HWY_INLINE Vec load_float(const std::int8_t* from) {
  const hn::Rebind<std::int8_t, Tag> d8;
  const hn::Rebind<std::int32_t, Tag> d32;
  return hn::ConvertTo(Tag(), hn::PromoteTo(d32, hn::LoadU(d8, from)));
}

// Keys and values come from memory once. They are asked for this far ahead,
// into the second cache: the first has few places for lines on their way, and
// loads would wait behind them.
inline constexpr std::int64_t kFetchAhead = 8192;
HWY_INLINE void fetch(const void* line) { __builtin_prefetch(line, 0, 2); }

// The blocks of a score tile and what lies ahead in memory.
template <typename T, int kBlocks>
struct TileKeys {
  const T* now[kBlocks];
  const std::byte* next[kBlocks];
};

// 1 / |k| of the 16 keys of a block, in the order of ordered_dot: element c
// goes to sum c % 16, then a tree.
template <typename T>
HWY_NOINLINE void inverse_norms(const T* HWY_RESTRICT k, std::int64_t d_k,
                                float* HWY_RESTRICT out) {
  const Tag d;
  for (int j = 0; j < kBlockVecs; ++j) {
    Vec sum[16];
    for (Vec& s : sum) s = hn::Zero(d);
    for (std::int64_t c = 0; c < d_k; ++c) {
      const Vec x = load_float(k + c * kBlockKeys + j * kVecLanes);
      sum[c % 16] = hn::MulAdd(x, x, sum[c % 16]);
    }
    for (int width = 8; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) sum[i] = hn::Add(sum[i], sum[i + width]);
    }
    const Vec norm = hn::Sqrt(sum[0]);
    const Vec inverse = hn::Div(hn::Set(d, 1.0f), norm);
    const Vec result = hn::IfThenZeroElse(hn::Eq(norm, hn::Zero(d)), inverse);
    hn::Store(result, d, out + j * kVecLanes);
  }
}

// scores[row][key] = sum over c of q[row][c] * k[c][key], one FMA chain each.
//   q rows d_k apart; scores rows kScoreStride apart
template <typename T, int kRows, int kBlocks, bool kCosine>
HWY_INLINE void decode_score_tile(const float* HWY_RESTRICT q, std::int64_t d_k,
                                  const TileKeys<T, kBlocks>& keys,
                                  const float* HWY_RESTRICT inverse,
                                  float* HWY_RESTRICT scores) {
  constexpr int kVecs = kBlocks * kBlockVecs;
  // Elements that fill a cache line of a block.
  constexpr int kLine = static_cast<int>(64 / (kBlockKeys * sizeof(T)));
  const Tag d;
  Vec sum[kRows][kVecs];
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int j = 0; j < kVecs; ++j) sum[r][j] = hn::Zero(d);
  }
  const auto step = [&](std::int64_t c) HWY_ATTR {
    Vec key[kVecs];
    HWY_UNROLL(8)
    for (int j = 0; j < kVecs; ++j) {
      key[j] = load_float(keys.now[j / kBlockVecs] + c * kBlockKeys +
                          j % kBlockVecs * kVecLanes);
      if constexpr (kCosine) {
        key[j] = hn::Mul(key[j], hn::LoadU(d, inverse + j * kVecLanes));
      }
    }
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      const Vec element = hn::Set(d, q[r * d_k + c]);
      HWY_UNROLL(8)
      for (int j = 0; j < kVecs; ++j) {
        sum[r][j] = hn::MulAdd(key[j], element, sum[r][j]);
      }
    }
  };
  // A part of the elements for each block to fetch, whose lines are then asked
  // for in order: what fetches ahead by itself follows them.
  const std::int64_t part = d_k / (kLine * kBlocks) * kLine;
  std::int64_t c = 0;
  for (int b = 0; b < kBlocks; ++b) {
    const std::byte* next = keys.next[b];
    for (std::int64_t end = c + part; c < end; c += kLine) {
      HWY_UNROLL(4)
      for (int i = 0; i < kBlocks; ++i) {
        fetch(next);
        next += 64;
      }
      HWY_UNROLL(4)
      for (int u = 0; u < kLine; ++u) step(c + u);
    }
  }
  for (; c < d_k; ++c) step(c);
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int j = 0; j < kVecs; ++j) {
      hn::Store(sum[r][j], d, scores + r * kScoreStride + j * kVecLanes);
    }
  }
}

// The sums of values times weights for some rows and columns, and the sums of
// the weights, both in the order of the keys.
//   weights, shares and sums as in DecodePass; v of a block at `column`
struct DecodeValues {
  const DecodeBlock* blocks;
  const LaneRange* lanes;  // of each block, that some row sees
  int block_count;
  int ahead;              // blocks to fetch ahead, up to
  int last;               // the last of the split
  std::int64_t v_stride;  // elements
  std::int64_t column;
  const float* weights;
  const float* shares;
  float* out;
  float* sums;
};

template <typename T, int kRows, int kColumns>
HWY_INLINE void decode_value_tile(const DecodeValues& p) {
  const Tag d;
  const std::int64_t columns = p.v_stride;
  Vec out[kRows][kColumns];
  Vec sum[kRows];
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    sum[r] = hn::Set(d, p.sums[r]);
    HWY_UNROLL(8)
    for (int j = 0; j < kColumns; ++j) {
      out[r][j] = hn::Load(d, p.out + r * columns + j * kVecLanes);
    }
  }
  for (int b = 0; b < p.block_count; ++b) {
    const T* HWY_RESTRICT v =
        reinterpret_cast<const T*>(p.blocks[b].v) + p.column;
    const int far = std::min(b + p.ahead, p.last);
    const T* const next =
        reinterpret_cast<const T*>(p.blocks[far].v) + p.column;
    for (std::int64_t i = p.lanes[b].begin; i < p.lanes[b].end; ++i) {
      Vec value[kColumns];
      HWY_UNROLL(8)
      for (int j = 0; j < kColumns; ++j) {
        value[j] = load_float(v + i * columns + j * kVecLanes);
        if (j * kVecLanes * sizeof(T) % 64 == 0) {
          fetch(next + i * columns + j * kVecLanes);
        }
      }
      HWY_UNROLL(4)
      for (int r = 0; r < kRows; ++r) {
        const std::int64_t at = r * kScoreStride + b * kBlockKeys + i;
        const Vec weight = hn::Set(d, p.weights[at]);
        const Vec share =
            std::is_same_v<T, std::int8_t> ? hn::Set(d, p.shares[at]) : weight;
        sum[r] = hn::Add(sum[r], weight);
        HWY_UNROLL(8)
        for (int j = 0; j < kColumns; ++j) {
          out[r][j] = hn::MulAdd(share, value[j], out[r][j]);
        }
      }
    }
  }
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    p.sums[r] = hn::GetLane(sum[r]);
    HWY_UNROLL(8)
    for (int j = 0; j < kColumns; ++j) {
      hn::Store(out[r][j], d, p.out + r * columns + j * kVecLanes);
    }
  }
}

// `vecs` vectors of columns from p.column on, in tiles as wide as they come.
template <typename T, int kRows, int kColumns>
HWY_INLINE void decode_value_columns(DecodeValues p, std::int64_t vecs) {
  HWY_ALIGN float unused[kRows] = {};
  for (; vecs >= kColumns; vecs -= kColumns) {
    decode_value_tile<T, kRows, kColumns>(p);
    p.column += kColumns * kVecLanes;
    p.out += kColumns * kVecLanes;
    p.sums = unused;
  }
  if constexpr (kColumns > 1) {
    decode_value_columns<T, kRows, kColumns / 2>(p, vecs);
  }
}

// The same without multiplying values whose weight is zero, so that an infinite
// or NaN value reaches no row that gives it no weight.
template <typename T>
HWY_NOINLINE void decode_values_carefully(const DecodeValues& p) {
  const Tag d;
  for (std::int64_t c = 0; c < p.v_stride; c += kVecLanes) {
    Vec sum = hn::Zero(d);
    for (int b = 0; b < p.block_count; ++b) {
      const T* const v = reinterpret_cast<const T*>(p.blocks[b].v);
      for (std::int64_t i = p.lanes[b].begin; i < p.lanes[b].end; ++i) {
        const float share = p.shares[b * kBlockKeys + i];
        if (share == 0) continue;
        sum = hn::MulAdd(hn::Set(d, share), load_float(v + i * p.v_stride + c),
                         sum);
      }
    }
    hn::Store(sum, d, p.out + c);
  }
}

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
    std::memset(memory_.out, 0, sizeof(float) * row_count_ * columns_);
    std::memset(memory_.sums, 0, sizeof(memory_.sums[0]) * kDecodeRows);
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
      float scale = row.scale * kLog2E;
      if (split_.cosine) {
        const float norm = std::sqrt(ordered_dot(row.q, row.q, layout_.d_k));
        scale *= norm == 0 ? 0 : 1 / norm;
      }
      float* const to = memory_.queries + r * layout_.d_k;
      for (std::int64_t c = 0; c < layout_.d_k; ++c) to[c] = row.q[c] * scale;
    }
  }

  template <int kRows>
  HWY_INLINE void score_rows(int first) {
    constexpr int kBlocks = score_tile_blocks<kRows>();
    const int last = split_.block_count - 1;
    const int ahead = std::max<int>(
        kBlocks, static_cast<int>(kFetchAhead / layout_.k_bytes()));
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
      if (split_.cosine) {
        HWY_ALIGN float inverse[kBlocks * kBlockKeys];
        for (int i = 0; i < kBlocks; ++i) {
          inverse_norms(keys.now[i], layout_.d_k, inverse + i * kBlockKeys);
        }
        decode_score_tile<T, kRows, kBlocks, true>(q, layout_.d_k, keys,
                                                   inverse, to);
      } else {
        decode_score_tile<T, kRows, kBlocks, false>(q, layout_.d_k, keys,
                                                    nullptr, to);
      }
    }
  }

  // scores -> weights of row r; for int8 also what values are multiplied by.
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
    if constexpr (kIsInt8) {
      float* const shares = memory_.shares + r * kScoreStride;
      for (int i = 0; i < count; i += kVecLanes) {
        const Vec weight = hn::Load(d, w + i);
        const Vec scale =
            hn::Load(d, v_scales(i / kBlockKeys) + i % kBlockKeys);
        // A hidden value's scale may be NaN, or never have been written.
        hn::Store(hn::IfThenZeroElse(hn::Eq(weight, hn::Zero(d)),
                                     hn::Mul(weight, scale)),
                  d, shares + i);
      }
    }
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
    const bool modified =
        split_.has_bias || split_.has_alibi || split_.softcap != 0;
    if (full && !modified && !kIsInt8) return;
    const Tag d;
    const LaneRange early =
        clip(row.early_begin, row.early_end, block.first_key);
    const auto lane = [&](std::int64_t n) HWY_ATTR {
      return hn::Set(d, static_cast<float>(n));
    };
    HWY_ALIGN float bias[kBlockKeys];
    if (split_.has_bias) load_bias(row, block, bias);
    const Vec hidden = hn::Set(d, -kInfinity);
    for (int i = 0; i < kBlockKeys; i += kVecLanes) {
      float* const at = memory_.weights + r * kScoreStride + b * kBlockKeys + i;
      Vec s = hn::Load(d, at);
      const Vec key = hn::Iota(d, static_cast<float>(i));
      if constexpr (kIsInt8) {
        const Vec scale = hn::Load(d, k_scales(b) + i);
        // The scale of a key does not change its direction, but may be NaN.
        s = hn::Mul(s, split_.cosine
                           ? hn::Add(hn::Sub(scale, scale), hn::Set(d, 1.0f))
                           : scale);
      }
      if (split_.softcap != 0) {
        const Vec cap_in = hn::Set(d, 0.6931471805599453f / split_.softcap);
        const Vec cap_out = hn::Set(d, split_.softcap * kLog2E);
        s = hn::Mul(tanh(hn::Mul(s, cap_in)), cap_out);
      }
      if (split_.has_bias) {
        const Vec add = hn::Load(d, bias + i);
        s = hn::MulAdd(add, hn::Set(d, kLog2E), s);
        s = hn::IfThenElse(hn::Eq(add, hidden), hidden, s);
      }
      if (split_.has_alibi) {
        const Vec position = lane(row.position - block.first_key);
        s = hn::NegMulAdd(hn::Set(d, row.alibi_slope * kLog2E),
                          hn::Abs(hn::Sub(position, key)), s);
      }
      if (!full) {
        const auto now =
            hn::And(hn::Le(lane(seen.begin), key), hn::Lt(key, lane(seen.end)));
        const auto before = hn::And(hn::Le(lane(early.begin), key),
                                    hn::Lt(key, lane(early.end)));
        s = hn::IfThenElse(hn::Or(now, before), s, hidden);
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
      to[i] = key < end ? row.bias[key * split_.bias_key_stride] : 0;
    }
  }

  HWY_INLINE DecodeValues values_of(int r) const {
    return {.blocks = split_.blocks,
            .lanes = lanes_,
            .block_count = split_.block_count,
            .ahead = 1 + static_cast<int>(kFetchAhead / layout_.v_bytes()),
            .last = split_.block_count - 1,
            .v_stride = columns_,
            .column = 0,
            .weights = memory_.weights + r * kScoreStride,
            .shares =
                (kIsInt8 ? memory_.shares : memory_.weights) + r * kScoreStride,
            .out = memory_.out + r * columns_,
            .sums = memory_.sums + r};
  }

  HWY_INLINE void add_values() {
    const int whole = row_count_ / kDecodeTileRows * kDecodeTileRows;
    // Where one tile does not do, a few blocks at a time, which stay near.
    const bool one_tile =
        row_count_ <= kDecodeTileRows && columns_ <= 4 * kVecLanes;
    const int step = one_tile || row_count_ == 1 ? split_.block_count : 2;
    for (int b = 0; b < split_.block_count; b += step) {
      const int count = std::min(step, split_.block_count - b);
      for (int r = 0; r < whole; r += kDecodeTileRows) {
        add_rows<kDecodeTileRows>(r, b, count);
      }
      with_rest([&](auto rows) HWY_ATTR {
        add_rows<decltype(rows)::value>(whole, b, count);
      });
    }
  }

  template <int kRows>
  HWY_INLINE void add_rows(int r, int b, int count) {
    DecodeValues p = values_of(r);
    p.blocks += b;
    p.lanes += b;
    p.weights += b * kBlockKeys;
    p.shares += b * kBlockKeys;
    p.block_count = count;
    p.last -= b;
    decode_value_columns<T, kRows, value_tile_columns<kRows>()>(
        p, columns_ / kVecLanes);
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
      decode_values_carefully<T>(values_of(r));
    }
    const DecodeState state(state_ + r * DecodeState::floats(columns_),
                            columns_);
    *state.max = maxima_[r];
    *state.sum = memory_.sums[r];
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
  const float factor = sum == 0 ? 0 : 1.0f / sum;
  const Vec f = hn::Set(d, factor);
  std::int64_t c = 0;
  HWY_ALIGN float last[kVecLanes];
  for (; c < d_v; c += kVecLanes) {
    const Vec x =
        factor == 0 ? hn::Zero(d) : hn::Mul(hn::Load(d, state.out + c), f);
    if (c + kVecLanes <= d_v) {
      hn::StoreU(x, d, row.out + c);
    } else {
      hn::Store(x, d, last);
      std::memcpy(row.out + c, last, sizeof(float) * (d_v - c));
    }
  }
  if (row.lse == nullptr) return;
  *row.lse = sum == 0 ? -kInfinity
                      : static_cast<float>(
                            (std::log2(static_cast<double>(sum)) + *state.max) *
                            0.6931471805599453);
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
