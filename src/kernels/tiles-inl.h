// SPDX-License-Identifier: Apache-2.0
// The register tiles of attention: products of a block of rows with keys and
// with values, and the transposes and conversions that feed them.
#if defined(REGARD_KERNELS_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_TILES_INL_H_
#undef REGARD_KERNELS_TILES_INL_H_
#else
#define REGARD_KERNELS_TILES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/attention_forward.h"
#include "kernels/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

// Tile sizes that keep all accumulators in registers: 24 of 32, or 12 of 16.
#if HWY_TARGET == HWY_AVX2
inline constexpr int kTileKeys = 4;
inline constexpr int kTileColumns = 2;  // vectors of value columns
#else
inline constexpr int kTileKeys = 8;
inline constexpr int kTileColumns = 4;
#endif
inline constexpr int kTileVecs = 3;  // vectors of rows in a score tile
inline constexpr int kTileRows = 6;  // rows in a value tile
static_assert(kGroupRows % kTileRows == 0);
inline constexpr int kVecLanes = static_cast<int>(hn::MaxLanes(Tag()));
static_assert(kGroupRows % kVecLanes == 0);
inline constexpr int kGroupVecs = kGroupRows / kVecLanes;

// scores[key][row] = sum over c of k[key][c] * q[c][row], one FMA chain each,
// for kKeys keys and kVecs vectors of rows. The chains of a long d_k come one
// call after the other: the later ones are added to the scores, and max[row]
// takes in the sums of the last.
//   q [depth][kGroupRows]; k rows k_stride apart; scores rows kGroupRows apart
template <int kKeys, int kVecs>
HWY_INLINE void score_tile(const float* HWY_RESTRICT q,
                           const float* HWY_RESTRICT k, std::int64_t k_stride,
                           std::int64_t depth, float* HWY_RESTRICT scores,
                           float* HWY_RESTRICT max, bool is_first,
                           bool is_last) {
  const Tag d;
  Vec sum[kKeys][kVecs];
  HWY_UNROLL(8)
  for (int i = 0; i < kKeys; ++i) {
    HWY_UNROLL(3)
    for (int j = 0; j < kVecs; ++j) sum[i][j] = hn::Zero(d);
  }
  const auto step = [&](std::int64_t c) HWY_ATTR {
    Vec row[kVecs];
    HWY_UNROLL(3)
    for (int j = 0; j < kVecs; ++j) {
      row[j] = hn::Load(d, q + c * kGroupRows + j * kVecLanes);
    }
    HWY_UNROLL(8)
    for (int i = 0; i < kKeys; ++i) {
      const Vec key = hn::Set(d, k[i * k_stride + c]);
      HWY_UNROLL(3)
      for (int j = 0; j < kVecs; ++j) {
        sum[i][j] = hn::MulAdd(key, row[j], sum[i][j]);
      }
    }
  };
  std::int64_t c = 0;
  for (; c + 16 <= depth; c += 16) {
    // The next keys: at d_k 128 a tile's rows are gone from L1 before long.
    HWY_UNROLL(8)
    for (int i = 0; i < kKeys; ++i) {
      hwy::Prefetch(k + (kKeys + i) * k_stride + c);
    }
    HWY_UNROLL(16)
    for (int u = 0; u < 16; ++u) step(c + u);
  }
  for (; c < depth; ++c) step(c);

  if (!is_first) {
    HWY_UNROLL(8)
    for (int i = 0; i < kKeys; ++i) {
      HWY_UNROLL(3)
      for (int j = 0; j < kVecs; ++j) {
        sum[i][j] = hn::Add(
            hn::Load(d, scores + i * kGroupRows + j * kVecLanes), sum[i][j]);
      }
    }
  }
  HWY_UNROLL(8)
  for (int i = 0; i < kKeys; ++i) {
    HWY_UNROLL(3)
    for (int j = 0; j < kVecs; ++j) {
      hn::Store(sum[i][j], d, scores + i * kGroupRows + j * kVecLanes);
    }
  }
  if (!is_last) return;
  HWY_UNROLL(3)
  for (int j = 0; j < kVecs; ++j) {
    Vec m = hn::Load(d, max + j * kVecLanes);
    HWY_UNROLL(8)
    for (int i = 0; i < kKeys; ++i) {
      m = hn::Max(sum[i][j], m);  // in this order a NaN is not taken in
    }
    hn::Store(m, d, max + j * kVecLanes);
  }
}

template <int kKeys>
HWY_NOINLINE void score_keys(const float* q, const float* k,
                             std::int64_t k_stride, std::int64_t d_k,
                             float* scores, float* max, int vecs) {
  std::int64_t c = 0;
  do {
    const std::int64_t end = depth_chain_end(c, d_k);
    const auto tile = [&](auto count, int j) HWY_ATTR {
      score_tile<kKeys, decltype(count)::value>(
          q + c * kGroupRows + j * kVecLanes, k + c, k_stride, end - c,
          scores + j * kVecLanes, max + j * kVecLanes, c == 0, end == d_k);
    };
    int j = 0;
    for (; j + kTileVecs <= vecs; j += kTileVecs) {
      tile(std::integral_constant<int, kTileVecs>(), j);
    }
    if (vecs - j == 2) {
      tile(std::integral_constant<int, 2>(), j);
    } else if (vecs - j == 1) {
      tile(std::integral_constant<int, 1>(), j);
    }
    c = end;
  } while (c < d_k);
}

// The scores of `keys` keys, 1 .. kTileKeys, with `vecs` vectors of rows.
HWY_INLINE void score_some(int keys, const float* q, const float* k,
                           std::int64_t k_stride, std::int64_t d_k,
                           float* scores, float* max, int vecs) {
  switch (keys) {
    case 8:
      return score_keys<kTileKeys>(q, k, k_stride, d_k, scores, max, vecs);
    case 7:
      return score_keys < 7 <= kTileKeys
                 ? 7
                 : 1 > (q, k, k_stride, d_k, scores, max, vecs);
    case 6:
      return score_keys < 6 <= kTileKeys
                 ? 6
                 : 1 > (q, k, k_stride, d_k, scores, max, vecs);
    case 5:
      return score_keys < 5 <= kTileKeys
                 ? 5
                 : 1 > (q, k, k_stride, d_k, scores, max, vecs);
    case 4:
      return score_keys<4>(q, k, k_stride, d_k, scores, max, vecs);
    case 3:
      return score_keys<3>(q, k, k_stride, d_k, scores, max, vecs);
    case 2:
      return score_keys<2>(q, k, k_stride, d_k, scores, max, vecs);
    default:
      return score_keys<1>(q, k, k_stride, d_k, scores, max, vecs);
  }
}

// How a tile of weights lies: [inner][row] as the scores do, or [row][inner].
// Either way kGroupRows apart.
enum class Weights { kInnerMajor, kRowMajor };

// The arguments of a product of weights with values but for the tile's size.
struct ValueProduct {
  const float* weights;
  const float* v;
  std::int64_t v_stride;
  std::int64_t inner;
  float* out;
  std::int64_t out_stride;  // of waiting, too
  // What is added to the chain first: earlier chains of its block, or null; and
  // whether out is added to what follows from that, or only written.
  const float* waiting;
  bool from_zero;
};

// out[row][column] += sum over inner of weight(row, inner) * v[inner][column]:
// one FMA chain from zero, then what waits is added, then out. kColumns counts
// vectors.
template <int kRows, int kColumns, Weights kLayout>
HWY_INLINE void value_tile(const ValueProduct& p) {
  constexpr int kRowStep = kLayout == Weights::kInnerMajor ? 1 : kGroupRows;
  constexpr int kInnerStep = kLayout == Weights::kInnerMajor ? kGroupRows : 1;
  const Tag d;
  const float* HWY_RESTRICT weights = p.weights;
  const float* HWY_RESTRICT v = p.v;
  const std::int64_t v_stride = p.v_stride;
  Vec sum[kRows][kColumns];
  HWY_UNROLL(6)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < kColumns; ++j) sum[i][j] = hn::Zero(d);
  }
  const auto step = [&](const float* w, const float* value) HWY_ATTR {
    Vec column[kColumns];
    HWY_UNROLL(4)
    for (int j = 0; j < kColumns; ++j) {
      column[j] = hn::LoadU(d, value + j * kVecLanes);
    }
    HWY_UNROLL(6)
    for (int i = 0; i < kRows; ++i) {
      const Vec weight = hn::Set(d, w[i * kRowStep]);
      HWY_UNROLL(4)
      for (int j = 0; j < kColumns; ++j) {
        sum[i][j] = hn::MulAdd(weight, column[j], sum[i][j]);
      }
    }
  };
  std::int64_t n = 0;
  for (; n + 2 <= p.inner; n += 2) {
    step(weights, v);
    step(weights + kInnerStep, v + v_stride);
    HWY_UNROLL(4)
    for (int j = 0; j < kColumns * kVecLanes; j += 16) {
      hwy::Prefetch(v + 8 * v_stride + j);
      hwy::Prefetch(v + 9 * v_stride + j);
    }
    weights += 2 * kInnerStep;
    v += 2 * v_stride;
  }
  if (n < p.inner) step(weights, v);
  const auto add = [&](const float* from) HWY_ATTR {
    HWY_UNROLL(6)
    for (int i = 0; i < kRows; ++i) {
      HWY_UNROLL(4)
      for (int j = 0; j < kColumns; ++j) {
        const float* const at = from + i * p.out_stride + j * kVecLanes;
        sum[i][j] = hn::Add(hn::Load(d, at), sum[i][j]);
      }
    }
  };
  if (p.waiting != nullptr) add(p.waiting);
  if (!p.from_zero) add(p.out);
  HWY_UNROLL(6)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < kColumns; ++j) {
      hn::Store(sum[i][j], d, p.out + i * p.out_stride + j * kVecLanes);
    }
  }
}

template <Weights kLayout, int kColumns>
HWY_NOINLINE void value_rows(int rows, const ValueProduct& p) {
  const auto run = [&](auto count) HWY_ATTR {
    value_tile<decltype(count)::value, kColumns, kLayout>(p);
  };
  switch (rows) {
    case 6:
      return run(std::integral_constant<int, 6>());
    case 5:
      return run(std::integral_constant<int, 5>());
    case 4:
      return run(std::integral_constant<int, 4>());
    case 3:
      return run(std::integral_constant<int, 3>());
    case 2:
      return run(std::integral_constant<int, 2>());
    default:
      return run(std::integral_constant<int, 1>());
  }
}

// 1 .. kTileRows rows, 1 .. kTileColumns vectors of columns.
template <Weights kLayout>
HWY_INLINE void value_some(int rows, int columns, const ValueProduct& p) {
  switch (columns) {
    case 4:
      return value_rows<kLayout, kTileColumns>(rows, p);
    case 3:
      return value_rows < kLayout, kTileColumns < 3 ? 1 : 3 > (rows, p);
    case 2:
      return value_rows<kLayout, 2>(rows, p);
    default:
      return value_rows<kLayout, 1>(rows, p);
  }
}

// The same for any size, but a weight of zero multiplies nothing: an infinite
// or NaN value then reaches only the rows that give it weight.
template <Weights kLayout>
HWY_NOINLINE void value_some_skipping_zeros(int rows, int columns,
                                            const ValueProduct& p) {
  constexpr int kRowStep = kLayout == Weights::kInnerMajor ? 1 : kGroupRows;
  constexpr int kInnerStep = kLayout == Weights::kInnerMajor ? kGroupRows : 1;
  const Tag d;
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      Vec sum = hn::Zero(d);
      for (std::int64_t n = 0; n < p.inner; ++n) {
        const float weight = p.weights[i * kRowStep + n * kInnerStep];
        if (weight == 0) continue;
        sum =
            hn::MulAdd(hn::Set(d, weight),
                       hn::LoadU(d, p.v + n * p.v_stride + j * kVecLanes), sum);
      }
      const std::int64_t at = i * p.out_stride + j * kVecLanes;
      if (p.waiting != nullptr) sum = hn::Add(hn::Load(d, p.waiting + at), sum);
      if (!p.from_zero) sum = hn::Add(hn::Load(d, p.out + at), sum);
      hn::Store(sum, d, p.out + at);
    }
  }
}

// Products of weights with values, [key][row] and [key][column], over the keys
// of a block in the canonical order: chains of kChainKeys, added in index order
// before their sum is added to out.
struct KeyBlockProduct {
  // The keys of a tile of kTileRows rows that it has weights for, from the
  // weights' first key on, which is `first_key` of the sequence.
  //   weights [keys][kGroupRows], v [keys][v_stride], out and
  //   waiting [rows][columns]
  const float* weights;
  const float* v;
  std::int64_t v_stride;
  std::int64_t first_key, keys;
  int rows;
  std::int64_t columns;
  float* out;
  float* waiting;
  bool skip_zeros;

  // keys_of(tile): a tile's keys; started(tile): whether out holds a sum.
  template <typename KeysOf, typename Started>
  HWY_INLINE void run(const KeysOf& keys_of, const Started& started) const {
    for (std::int64_t begin = 0; begin < keys;) {
      const std::int64_t end =
          std::min(begin + keys_until_cut(first_key + begin), keys);
      ValueProduct tiles[kGroupRows / kTileRows];
      int tile_rows[kGroupRows / kTileRows];
      int count = 0;
      for (int r = 0; r < rows; r += kTileRows) {
        const auto [tile_begin, tile_end] = keys_of(r / kTileRows);
        const std::int64_t from = std::max(begin, tile_begin);
        const std::int64_t to = std::min(end, tile_end);
        if (from >= to) continue;
        const bool is_last = tile_end <= end;
        tile_rows[count] = std::min(kTileRows, rows - r);
        tiles[count++] = {
            .weights = weights + from * kGroupRows + r,
            .v = v + from * v_stride,
            .v_stride = v_stride,
            .inner = to - from,
            .out = (is_last ? out : waiting) + r * columns,
            .out_stride = columns,
            .waiting = tile_begin < begin ? waiting + r * columns : nullptr,
            .from_zero = !is_last || !started(r / kTileRows)};
      }
      multiply(tiles, tile_rows, count);
      begin = end;
    }
  }

  // Columns outermost: a strip of values stays in L1 over all rows.
  HWY_INLINE void multiply(ValueProduct* tiles, const int* tile_rows,
                           int count) const {
    constexpr std::int64_t kTileWidth = kTileColumns * kVecLanes;
    for (std::int64_t c = 0; c < columns; c += kTileWidth) {
      const auto vecs =
          static_cast<int>(std::min(kTileWidth, columns - c) / kVecLanes);
      for (int i = 0; i < count; ++i) {
        ValueProduct& tile = tiles[i];
        if (skip_zeros) {
          value_some_skipping_zeros<Weights::kInnerMajor>(tile_rows[i], vecs,
                                                          tile);
        } else {
          value_some<Weights::kInnerMajor>(tile_rows[i], vecs, tile);
        }
        tile.v += kTileWidth;
        tile.out += kTileWidth;
        if (tile.waiting != nullptr) tile.waiting += kTileWidth;
      }
    }
  }
};

// ---- feeding the tiles ----

// Calls body with a null pointer of the storage type.
template <typename Body>
HWY_INLINE void with_storage(Storage storage, const Body& body) {
  switch (storage) {
    case Storage::kFloat32:
      return body(static_cast<float*>(nullptr));
    case Storage::kBFloat16:
      return body(static_cast<hwy::bfloat16_t*>(nullptr));
    case Storage::kFloat16:
      return body(static_cast<hwy::float16_t*>(nullptr));
  }
}

HWY_INLINE Vec load_float(const float* from) { return hn::LoadU(Tag(), from); }
HWY_INLINE Vec load_float(const hwy::bfloat16_t* from) {
  return hn::PromoteTo(Tag(),
                       hn::LoadU(hn::Rebind<hwy::bfloat16_t, Tag>(), from));
}
HWY_INLINE Vec load_float(const hwy::float16_t* from) {
  return hn::PromoteTo(Tag(),
                       hn::LoadU(hn::Rebind<hwy::float16_t, Tag>(), from));
}

HWY_INLINE void store_float(Vec value, float* to) {
  hn::StoreU(value, Tag(), to);
}
HWY_INLINE void store_float(Vec value, hwy::float16_t* to) {
  const hn::Rebind<hwy::float16_t, Tag> d16;
  hn::StoreU(hn::DemoteTo(d16, value), d16, to);
}
// Rounds to nearest even. Highway 1.0's own DemoteTo truncates.
HWY_INLINE void store_float(Vec value, hwy::bfloat16_t* to) {
  const Tag d;
  const hn::RebindToUnsigned<Tag> du;
  const hn::Rebind<hwy::bfloat16_t, Tag> d16;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  const Vec result = hn::IfThenElse(hn::IsNaN(value), hn::BitCast(d, quiet),
                                    hn::BitCast(d, rounded));
  hn::StoreU(hn::DemoteTo(d16, result), d16, to);
}

// to[0, n) <- from[0, n); reads and writes nothing beyond. T is a storage type
// on one side and float on the other.
template <typename From, typename To>
HWY_INLINE void convert_row(const From* HWY_RESTRICT from, std::int64_t n,
                            To* HWY_RESTRICT to) {
  std::int64_t i = 0;
  for (; i + kVecLanes <= n; i += kVecLanes) {
    store_float(load_float(from + i), to + i);
  }
  if (i < n) {
    From in[kVecLanes] = {};
    To out[kVecLanes];
    for (std::int64_t j = i; j < n; ++j) in[j - i] = from[j];
    store_float(load_float(in), out);
    for (std::int64_t j = i; j < n; ++j) to[j] = out[j - i];
  }
}

// A vector whose block b of four floats is the four at rows[4 * b] + i.
template <class D>
HWY_INLINE hn::Vec<D> load_blocks(D d, const float* const* rows,
                                  std::int64_t i) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, rows[0] + i);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_blocks(half, rows + hn::MaxLanes(D()) / 2, i),
                       load_blocks(half, rows, i));
  }
}

// Stores a vector of four or more as a whole one; what is added is zero.
template <class D>
HWY_INLINE void store_extended(D d, hn::Vec<D> x, float* to) {
  if constexpr (hn::MaxLanes(D()) == kVecLanes) {
    hn::StoreU(x, d, to);
  } else {
    const hn::Twice<D> twice;
    store_extended(twice, hn::ZeroExtendVector(twice, x), to);
  }
}

// out[i][r] <- rows[r][i] * scale[r] for i in [0, n) and one vector of rows;
// out rows are kGroupRows apart. kWhole: fills a whole vector with zeros.
template <bool kWhole, class D>
HWY_INLINE void transpose_vector(D d, const float* const* rows, std::int64_t n,
                                 float* HWY_RESTRICT out, const float* scale) {
  constexpr auto kLanes = static_cast<int>(hn::MaxLanes(D()));
  const auto factor = scale == nullptr ? hn::Set(d, 1.0f) : hn::LoadU(d, scale);
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    // Four by four within each block; the blocks stand in order already.
    const auto a = load_blocks(d, rows, i);
    const auto b = load_blocks(d, rows + 1, i);
    const auto c = load_blocks(d, rows + 2, i);
    const auto e = load_blocks(d, rows + 3, i);
    const auto ac_low = hn::InterleaveLower(d, a, c);
    const auto ac_high = hn::InterleaveUpper(d, a, c);
    const auto be_low = hn::InterleaveLower(d, b, e);
    const auto be_high = hn::InterleaveUpper(d, b, e);
    const auto put = [&](int row, auto x) HWY_ATTR {
      float* const to = out + (i + row) * kGroupRows;
      if constexpr (kWhole) {
        store_extended(d, hn::Mul(x, factor), to);
      } else {
        hn::StoreU(hn::Mul(x, factor), d, to);
      }
    };
    put(0, hn::InterleaveLower(d, ac_low, be_low));
    put(1, hn::InterleaveUpper(d, ac_low, be_low));
    put(2, hn::InterleaveLower(d, ac_high, be_high));
    put(3, hn::InterleaveUpper(d, ac_high, be_high));
  }
  for (; i < n; ++i) {
    if constexpr (kWhole) {
      hn::StoreU(hn::Zero(Tag()), Tag(), out + i * kGroupRows);
    }
    for (int j = 0; j < kLanes; ++j) {
      out[i * kGroupRows + j] =
          rows[j][i] * (scale == nullptr ? 1.0f : scale[j]);
    }
  }
}

// out[i][r] <- rows[r][i] * scale[r] for i in [0, n) and r in [0, count); out
// rows are kGroupRows apart. Null for scale: 1. Reads nothing beyond.
HWY_INLINE void transpose_rows(const float* const* rows, int count,
                               std::int64_t n, float* HWY_RESTRICT out,
                               const float* scale = nullptr) {
  const auto scale_of = [&](int row) HWY_ATTR {
    return scale == nullptr ? nullptr : scale + row;
  };
  int r = 0;
  for (; r + kVecLanes <= count; r += kVecLanes) {
    transpose_vector<false>(Tag(), rows + r, n, out + r, scale_of(r));
  }
  for (; r + 4 <= count; r += 4) {
    transpose_vector<false>(hn::FixedTag<float, 4>(), rows + r, n, out + r,
                            scale_of(r));
  }
  for (; r < count; ++r) {
    const float factor = scale == nullptr ? 1.0f : scale[r];
    for (std::int64_t i = 0; i < n; ++i) {
      out[i * kGroupRows + r] = rows[r][i] * factor;
    }
  }
}

// Has a few floats brought near that will be wanted soon. Rows that are far
// apart take this: the machine finds no pattern in so many.
HWY_INLINE void fetch(const float* from, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += 16) hwy::Prefetch(from + i);
}

// rows[r][i] <- tile[i][r] for i in [0, n) and r in [0, count); tile rows are
// kGroupRows apart.
HWY_INLINE void transpose_tile(const float* HWY_RESTRICT tile, std::int64_t n,
                               float* const* rows, int count) {
  const hn::FixedTag<float, 4> d4;
  HWY_ALIGN float unused[kKeyBlock];
  for (int r = 0; r < count; r += 4) {
    float* to[4];
    for (int u = 0; u < 4; ++u) to[u] = r + u < count ? rows[r + u] : unused;
    const float* from = tile + r;
    std::int64_t i = 0;
    for (; i + 4 <= n; i += 4, from += 4 * kGroupRows) {
      const auto a = hn::LoadU(d4, from);
      const auto b = hn::LoadU(d4, from + kGroupRows);
      const auto c = hn::LoadU(d4, from + 2 * kGroupRows);
      const auto e = hn::LoadU(d4, from + 3 * kGroupRows);
      const auto ac_low = hn::InterleaveLower(d4, a, c);
      const auto ac_high = hn::InterleaveUpper(d4, a, c);
      const auto be_low = hn::InterleaveLower(d4, b, e);
      const auto be_high = hn::InterleaveUpper(d4, b, e);
      hn::StoreU(hn::InterleaveLower(d4, ac_low, be_low), d4, to[0] + i);
      hn::StoreU(hn::InterleaveUpper(d4, ac_low, be_low), d4, to[1] + i);
      hn::StoreU(hn::InterleaveLower(d4, ac_high, be_high), d4, to[2] + i);
      hn::StoreU(hn::InterleaveUpper(d4, ac_high, be_high), d4, to[3] + i);
    }
    for (; i < n; ++i, from += kGroupRows) {
      for (int u = 0; u < 4; ++u) to[u][i] = from[u];
    }
  }
}

// to[r][i] += from[i][r] for i in [0, n) and r in [0, count); from's rows are
// kGroupRows apart.
HWY_INLINE void add_transposed(const float* HWY_RESTRICT from, int count,
                               std::int64_t n, float* const* to) {
  const hn::FixedTag<float, 4> d4;
  int r = 0;
  for (; r + 4 <= count; r += 4) {
    std::int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
      const float* at = from + i * kGroupRows + r;
      const auto a = hn::LoadU(d4, at);
      const auto b = hn::LoadU(d4, at + kGroupRows);
      const auto c = hn::LoadU(d4, at + 2 * kGroupRows);
      const auto e = hn::LoadU(d4, at + 3 * kGroupRows);
      const auto ac_low = hn::InterleaveLower(d4, a, c);
      const auto ac_high = hn::InterleaveUpper(d4, a, c);
      const auto be_low = hn::InterleaveLower(d4, b, e);
      const auto be_high = hn::InterleaveUpper(d4, b, e);
      // One row after the other: rows may be the same memory.
      const auto add = [&](int row, auto values) HWY_ATTR {
        float* const out = to[r + row] + i;
        hn::StoreU(hn::Add(hn::LoadU(d4, out), values), d4, out);
      };
      add(0, hn::InterleaveLower(d4, ac_low, be_low));
      add(1, hn::InterleaveUpper(d4, ac_low, be_low));
      add(2, hn::InterleaveLower(d4, ac_high, be_high));
      add(3, hn::InterleaveUpper(d4, ac_high, be_high));
    }
    for (; i < n; ++i) {
      for (int row = 0; row < 4; ++row) {
        to[r + row][i] += from[i * kGroupRows + r + row];
      }
    }
  }
  for (; r < count; ++r) {
    for (std::int64_t i = 0; i < n; ++i) to[r][i] += from[i * kGroupRows + r];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
