// SPDX-License-Identifier: Apache-2.0
// The register tiles of decoding: scores of few rows with cached keys, lanes
// over keys, and products with cached values, lanes over columns.
#if defined(REGARD_KERNELS_ATTENTION_DECODE_TILES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_ATTENTION_DECODE_TILES_INL_H_
#undef REGARD_KERNELS_ATTENTION_DECODE_TILES_INL_H_
#else
#define REGARD_KERNELS_ATTENTION_DECODE_TILES_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "kernels/attention_decode.h"
#include "kernels/attention_decode_memory.h"
#include "kernels/tiles-inl.h"
#include "kernels/unit_vectors-inl.h"

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

// Keys and values come from memory once. They are asked for so many bytes
// ahead, and at least a chain of keys, into the second cache: the first has few
// places for lines on their way, and loads would wait behind them.
inline constexpr std::int64_t kFetchAhead = 8192;
inline constexpr int kChainBlocks = static_cast<int>(kChainKeys / kBlockKeys);
HWY_INLINE int blocks_ahead(std::int64_t block_bytes) {
  return std::max(kChainBlocks, static_cast<int>(kFetchAhead / block_bytes));
}
HWY_INLINE void fetch(const void* line) { __builtin_prefetch(line, 0, 2); }

// Values that are to be fetched, in the order of memory, which what fetches
// ahead by itself follows. Tiles use them in another order: some columns of
// all keys of a chain, then the next columns.
struct ValueFetch {
  const DecodeBlock* blocks;
  int block, last;  // the last is fetched again where blocks run out
  std::size_t at, block_bytes;

  // Where the next `bytes` of them begin. At most a block.
  HWY_INLINE const std::byte* take(std::size_t bytes) {
    if (at + bytes > block_bytes) {
      at = 0;
      ++block;
    }
    const std::byte* const from = blocks[std::min(block, last)].v + at;
    at += bytes;
    return from;
  }
};

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
  const auto clear = [&]() HWY_ATTR {
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
HWY_INLINE void decode_value_tile(const DecodeValues& p, ValueFetch& ahead) {
  constexpr std::size_t kTileBytes = kColumns * kVecLanes * sizeof(T);
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
    const std::byte* const next = ahead.take(kBlockKeys * kTileBytes);
    for (std::int64_t i = p.lanes[b].begin; i < p.lanes[b].end; ++i) {
      Vec weight[kRows];
      HWY_UNROLL(4)
      for (int r = 0; r < kRows; ++r) {
        weight[r] =
            hn::Set(d, p.weights[r * kScoreStride + b * kBlockKeys + i]);
      }
      // One vector of values at a time: all of them and the sums are more than
      // there are registers.
      HWY_UNROLL(8)
      for (int j = 0; j < kColumns; ++j) {
        const Vec value = load_float(v + i * columns + j * kVecLanes);
        if (j * kVecLanes * sizeof(T) % 64 == 0) {
          fetch(next + i * kTileBytes + j * kVecLanes * sizeof(T));
        }
        HWY_UNROLL(4)
        for (int r = 0; r < kRows; ++r) {
          sum[r][j] = hn::MulAdd(weight[r], value, sum[r][j]);
        }
      }
    }
  }
  const auto add = [&](const float* from) HWY_ATTR {
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(8)
      for (int j = 0; j < kColumns; ++j) {
        const float* const at = from + r * columns + j * kVecLanes;
        sum[r][j] = hn::Add(hn::Load(d, at), sum[r][j]);
      }
    }
  };
  if (!p.starts_block) add(p.key_block);
  if (p.ends_block && !p.starts_split) add(p.out);
  float* const to = p.ends_block ? p.out : p.key_block;
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int j = 0; j < kColumns; ++j) {
      hn::Store(sum[r][j], d, to + r * columns + j * kVecLanes);
    }
  }
}

// `vecs` vectors of columns from p.column on, in tiles as wide as they come.
template <typename T, int kRows, int kColumns>
HWY_INLINE void decode_value_columns(DecodeValues p, std::int64_t vecs,
                                     ValueFetch& ahead) {
  for (; vecs >= kColumns; vecs -= kColumns) {
    decode_value_tile<T, kRows, kColumns>(p, ahead);
    p.column += kColumns * kVecLanes;
    p.key_block += kColumns * kVecLanes;
    p.out += kColumns * kVecLanes;
  }
  if constexpr (kColumns > 1) {
    decode_value_columns<T, kRows, kColumns / 2>(p, vecs, ahead);
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

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
