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

// Whether no later block has keys of the same kKeys, counted from key 0.
template <std::int64_t kKeys>
HWY_INLINE bool ends(const DecodeBlock* blocks, int b, int count) {
  return b + 1 == count ||
         blocks[b].first_key / kKeys != blocks[b + 1].first_key / kKeys;
}

// UnitFactors of the 16 keys of a block.
struct KeyNorms {
  HWY_ALIGN float scale[kBlockKeys];
  HWY_ALIGN float inverse[kBlockKeys];
};

// In the order of ordered_dot: element c goes to sum c % 16, then a tree.
template <typename T>
HWY_NOINLINE void measure_keys(const T* HWY_RESTRICT k, std::int64_t d_k,
                               KeyNorms& norms) {
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
    HWY_ALIGN float squares[kVecLanes];
    hn::Store(sum[0], d, squares);
    for (int i = 0; i < kVecLanes; ++i) {
      const UnitFactors unit =
          unit_factors(squares[i], d_k, [&](std::int64_t c) HWY_ATTR {
            HWY_ALIGN float lanes[kVecLanes];
            hn::Store(load_float(k + c * kBlockKeys + j * kVecLanes), d, lanes);
            return lanes[i];
          });
      norms.scale[j * kVecLanes + i] = unit.scale;
      norms.inverse[j * kVecLanes + i] = unit.inverse;
    }
  }
}

// scores[row][key] = sum over c of q[row][c] * k[c][key], by depth_chain_end's
// chains added in index order. Cosine scores: of keys of length 1.
//   q rows d_k apart; scores rows kScoreStride apart
template <typename T, int kRows, int kBlocks, bool kCosine>
HWY_INLINE void decode_score_tile(const float* HWY_RESTRICT q, std::int64_t d_k,
                                  const TileKeys<T, kBlocks>& keys,
                                  const KeyNorms* HWY_RESTRICT norms,
                                  float* HWY_RESTRICT scores) {
  constexpr int kVecs = kBlocks * kBlockVecs;
  // Elements that fill a cache line of a block.
  constexpr int kLine = static_cast<int>(64 / (kBlockKeys * sizeof(T)));
  const Tag d;
  Vec sum[kRows][kVecs];
  const auto clear = [&] HWY_ATTR {
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(8)
      for (int j = 0; j < kVecs; ++j) sum[r][j] = hn::Zero(d);
    }
  };
  const auto step = [&](std::int64_t c) HWY_ATTR {
    Vec key[kVecs];
    HWY_UNROLL(8)
    for (int j = 0; j < kVecs; ++j) {
      const int at = j % kBlockVecs * kVecLanes;
      key[j] = load_float(keys.now[j / kBlockVecs] + c * kBlockKeys + at);
      if constexpr (kCosine) {
        const KeyNorms& norm = norms[j / kBlockVecs];
        key[j] = hn::Mul(hn::Mul(key[j], hn::Load(d, norm.scale + at)),
                         hn::Load(d, norm.inverse + at));
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
  // Chains wait in `scores` for those behind them.
  const auto store = [&](bool add) HWY_ATTR {
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(8)
      for (int j = 0; j < kVecs; ++j) {
        float* const to = scores + r * kScoreStride + j * kVecLanes;
        hn::Store(add ? hn::Add(hn::Load(d, to), sum[r][j]) : sum[r][j], d, to);
      }
    }
  };
  // A part of the elements for each block to fetch, whose lines are then asked
  // for in order: what fetches ahead by itself follows them.
  const std::int64_t part = d_k / (kLine * kBlocks) * kLine;
  const std::byte* next = nullptr;
  std::int64_t part_end = 0;
  int fetched = 0;  // blocks
  std::int64_t c = 0;
  do {
    clear();
    const std::int64_t begin = c;
    const std::int64_t end = depth_chain_end(begin, d_k);
    for (; c + kLine <= end; c += kLine) {
      if (c == part_end && fetched < kBlocks) {
        next = keys.next[fetched++];
        part_end += part;
      }
      if (c < part_end) {
        HWY_UNROLL(4)
        for (int i = 0; i < kBlocks; ++i) {
          fetch(next);
          next += 64;
        }
      }
      HWY_UNROLL(4)
      for (int u = 0; u < kLine; ++u) step(c + u);
    }
    for (; c < end; ++c) step(c);
    store(begin > 0);
  } while (c < d_k);
}

// The keys of one chain, or of a whole split: weights times values for some
// rows and columns.
//   weights as in DecodePass; v of a block at `column`
struct DecodeValues {
  const DecodeBlock* blocks;
  const LaneRange* lanes;  // of each block, that some row sees
  int block_count;
  int ahead;              // blocks to fetch ahead, up to
  int last;               // the last of the split
  std::int64_t v_stride;  // elements
  std::int64_t column;
  const float* weights;  // times the scales of int8 values
  float* key_block;      // [rows][v_stride]: the chains of a block so far
  float* out;            // [rows][v_stride]: the blocks so far
  // The place of the chain in its block, and of the block in the split.
  bool starts_block, ends_block, starts_split;
};

// One chain from zero, added to the block's; the last of a block, added to out.
template <typename T, int kRows, int kColumns>
HWY_INLINE void decode_value_tile(const DecodeValues& p) {
  const Tag d;
  const std::int64_t columns = p.v_stride;
  Vec sum[kRows][kColumns];
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int j = 0; j < kColumns; ++j) sum[r][j] = hn::Zero(d);
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
        const Vec weight =
            hn::Set(d, p.weights[r * kScoreStride + b * kBlockKeys + i]);
        HWY_UNROLL(8)
        for (int j = 0; j < kColumns; ++j) {
          sum[r][j] = hn::MulAdd(weight, value[j], sum[r][j]);
        }
      }
    }
  }
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int j = 0; j < kColumns; ++j) {
      const std::int64_t at = r * columns + j * kVecLanes;
      Vec x = sum[r][j];
      if (!p.starts_block) x = hn::Add(hn::Load(d, p.key_block + at), x);
      if (!p.ends_block) {
        hn::Store(x, d, p.key_block + at);
        continue;
      }
      if (!p.starts_split) x = hn::Add(hn::Load(d, p.out + at), x);
      hn::Store(x, d, p.out + at);
    }
  }
}

// `vecs` vectors of columns from p.column on, in tiles as wide as they come.
template <typename T, int kRows, int kColumns>
HWY_INLINE void decode_value_columns(DecodeValues p, std::int64_t vecs) {
  for (; vecs >= kColumns; vecs -= kColumns) {
    decode_value_tile<T, kRows, kColumns>(p);
    p.column += kColumns * kVecLanes;
    p.key_block += kColumns * kVecLanes;
    p.out += kColumns * kVecLanes;
  }
  if constexpr (kColumns > 1) {
    decode_value_columns<T, kRows, kColumns / 2>(p, vecs);
  }
}

// A whole split of one row without multiplying values whose weight is zero, so
// that an infinite or NaN value reaches no row that gives it no weight.
template <typename T>
HWY_NOINLINE void decode_values_skipping_zeros(const DecodeValues& p) {
  const Tag d;
  for (std::int64_t c = 0; c < p.v_stride; c += kVecLanes) {
    Vec chain = hn::Zero(d), key_block = hn::Zero(d), out = hn::Zero(d);
    for (int b = 0; b < p.block_count; ++b) {
      const T* const v = reinterpret_cast<const T*>(p.blocks[b].v);
      for (std::int64_t i = p.lanes[b].begin; i < p.lanes[b].end; ++i) {
        const float weight = p.weights[b * kBlockKeys + i];
        if (weight == 0) continue;
        chain = hn::MulAdd(hn::Set(d, weight),
                           load_float(v + i * p.v_stride + c), chain);
      }
      if (!ends<kChainKeys>(p.blocks, b, p.block_count)) continue;
      key_block = hn::Add(key_block, chain);
      chain = hn::Zero(d);
      if (!ends<kKeyBlock>(p.blocks, b, p.block_count)) continue;
      out = hn::Add(out, key_block);
      key_block = hn::Zero(d);
    }
    hn::Store(out, d, p.out + c);
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
      const UnitFactors unit =
          split_.cosine ? unit_factors(row.q, layout_.d_k) : UnitFactors();
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
        const Softcap softcap(split_.softcap);
        s = softcap.score(softcap.tangent(s));
      }
      if (split_.has_bias) {
        s = add_bias(s, hn::Load(d, bias + i));
      }
      if (split_.has_alibi) {
        s = add_alibi(s, hn::Set(d, row.alibi_slope * kLog2E),
                      lane(row.position - block.first_key), key);
      }
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
    p.last -= chain.first;
    p.starts_block = chain.starts_block;
    p.ends_block = chain.ends_block;
    p.starts_split = chain.starts_split;
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
  *row.lse = sum == 0 ? -kInfinity
                      : static_cast<float>(
                            (std::log2(static_cast<double>(sum)) + *state.max) *
                            0.6931471805599453);
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
