// SPDX-License-Identifier: Apache-2.0
// Included once for each target; no include guard of the usual kind.
#if defined(REGARD_KERNELS_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_GEMM_INL_H_
#undef REGARD_KERNELS_GEMM_INL_H_
#else
#define REGARD_KERNELS_GEMM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/gemm.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that kColumnStep is a whole number of vectors.
using GemmTag = hn::CappedTag<float, 16>;
using GemmVec = hn::Vec<GemmTag>;

// Rows times vectors of the largest tile, plus the vectors of b and one
// broadcast of a, must fit in the registers: 32 of them, or 16.
#if HWY_TARGET == HWY_AVX2
constexpr int kGemmRows = 6;
constexpr int kGemmVecs = 2;
#else
constexpr int kGemmRows = 8;
constexpr int kGemmVecs = 3;
#endif
static_assert(kGemmRowGrain % kGemmRows == 0);
// Of sides that are both read as they are, a tile is as wide as a panel, so
// that rows of b that lie far apart pass through the L1 cache once.
constexpr bool gemm_is_wide(LeftSide left, RightSide right) {
  return left == LeftSide::kRows && right == RightSide::kRows;
}
constexpr int gemm_tile_vecs(LeftSide left, RightSide right) {
  return gemm_is_wide(left, right) ? 3 : kGemmVecs;
}
constexpr int gemm_tile_rows(LeftSide left, RightSide right) {
  return gemm_is_wide(left, right) && kGemmVecs < 3 ? 4 : kGemmRows;
}

// k is cut so that a panel [kGemmDepth][48] mostly stays in the L1 cache while
// all row tiles pass over it.
constexpr std::int64_t kGemmDepth = 256;
// All panels pass over one span of k before the next, so that the rows of a
// stay in the L2 cache however long they are.
constexpr std::int64_t kGemmSpan = 512;
static_assert(kGemmSpan % kGemmDepth == 0 && kGemmDepth % kGemmChain == 0);
// The same for rows of b that are not packed: a few at a time over their whole
// width, which is nearly the order in which they lie in memory.
constexpr std::int64_t kGemmRowsDepth = kGemmChain;

constexpr std::int64_t gemm_depth(RightSide right) {
  return right == RightSide::kRows ? kGemmRowsDepth : kGemmDepth;
}
constexpr std::int64_t gemm_span(RightSide right) {
  return right == RightSide::kRows ? kGemmRowsDepth : kGemmSpan;
}

// A result of so many floats that is a product of few rows is written past the
// caches where that is quicker: to write it costs more than to compute it. With
// AVX2 (Zen 3) it takes twice the time of writing into them.
constexpr bool kGemmMayStream = HWY_TARGET != HWY_AVX2;
constexpr std::int64_t kGemmStreamFloats = 1 << 15;

// One tile of one cut of k. `a` is read as a[r * a_row + i * a_step].
struct GemmTile {
  const float* a;
  std::int64_t a_row;
  const float* b;  // [k][b_step]
  std::int64_t b_step;
  const float* bias;
  float* c;
  std::int64_t c_stride;
  std::int64_t k;
  bool from_zero;
  bool streams;  // c is written past the caches
  // What is wanted next of b: the first tiles fetch some of it each step of k,
  // because it comes from beyond the L2 cache. A step of 0 fetches nothing new.
  const float* ahead;
  std::int64_t ahead_step;
  // Rows of a that the first panel reads come from beyond the L2 cache, too:
  // each tile fetches those of the next one. Null fetches nothing.
  const float* a_ahead;
};

// A panel [k][48] is 3 k lines long. Many tiles of rows fetch one line a step;
// of few there may be one alone.
constexpr int gemm_fetched_lines(RightSide right) {
  return right == RightSide::kRows ? 3 : 1;
}

template <int kRows, int kVecs, LeftSide kLeft, RightSide kRight>
HWY_INLINE void gemm_tile(const GemmTile& t) {
  const GemmTag d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float* HWY_RESTRICT a = t.a;
  const float* HWY_RESTRICT b = t.b;
  const float* ahead = t.ahead;
  const std::int64_t a_row = kLeft == LeftSide::kPacked ? 1 : t.a_row;
  constexpr std::int64_t kStep = kLeft == LeftSide::kPacked ? kGemmRows : 1;
  GemmVec sum[kRows][kVecs];
  std::int64_t i = 0;
  do {
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(3)
      for (int v = 0; v < kVecs; ++v) sum[r][v] = hn::Zero(d);
    }
    const bool from_zero = t.from_zero && i == 0;
    if (kLeft == LeftSide::kRows && t.a_ahead != nullptr) {
      HWY_UNROLL(8)
      for (int r = 0; r < kRows; ++r) {
        for (std::int64_t line = 0; line < kGemmChain; line += 16) {
          hwy::Prefetch(t.a_ahead + r * a_row + i + line);
        }
      }
    }
    for (const std::int64_t end = std::min(i + kGemmChain, t.k); i < end; ++i) {
      GemmVec right[kVecs];
      HWY_UNROLL(3)
      for (int v = 0; v < kVecs; ++v) right[v] = hn::LoadU(d, b + v * lanes);
      HWY_UNROLL(8)
      for (int r = 0; r < kRows; ++r) {
        const GemmVec left = hn::Set(d, a[r * a_row]);
        HWY_UNROLL(3)
        for (int v = 0; v < kVecs; ++v) {
          sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
        }
      }
      for (int line = 0; line < gemm_fetched_lines(kRight); ++line) {
        hwy::Prefetch(ahead + line * 16);
      }
      a += kStep;
      b += t.b_step;
      ahead += t.ahead_step;
    }
    const auto for_each = [&](const auto& body) HWY_ATTR {
      HWY_UNROLL(8)
      for (int r = 0; r < kRows; ++r) {
        HWY_UNROLL(3)
        for (int v = 0; v < kVecs; ++v) {
          body(sum[r][v], t.c + r * t.c_stride + v * lanes, v);
        }
      }
    };
    if (!from_zero) {
      for_each([&](GemmVec& x, const float* c, int)
                   HWY_ATTR { x = hn::Add(hn::LoadU(d, c), x); });
    }
    if (t.bias != nullptr && i == t.k) {
      for_each([&](GemmVec& x, const float*, int v) HWY_ATTR {
        x = hn::Add(x, hn::LoadU(d, t.bias + v * lanes));
      });
    }
    if (kRight == RightSide::kRows && t.streams) {
      for_each([&](const GemmVec& x, float* c, int)
                   HWY_ATTR { hn::Stream(x, d, c); });
    } else {
      for_each([&](const GemmVec& x, float* c, int)
                   HWY_ATTR { hn::StoreU(x, d, c); });
    }
  } while (i < t.k);
}

// All rows of one column of tiles; the fewer rows at the end in powers of two.
template <int kVecs, LeftSide kLeft, RightSide kRight>
HWY_NOINLINE void gemm_rows(GemmTile t, std::int64_t rows) {
  constexpr int kRows = gemm_tile_rows(kLeft, kRight);
  std::int64_t row = 0;
  const float* const a = t.a;
  float* const c = t.c;
  const bool fetches_rows = t.a_ahead != nullptr;
  const std::int64_t depth = t.a_row;  // of a packed tile
  const auto move_to_row = [&] {
    t.a = kLeft == LeftSide::kPacked
              ? a + row / kGemmRows * kGemmRows * depth + row % kGemmRows
              : a + row * t.a_row;
    t.c = c + row * t.c_stride;
  };
  for (; row + kRows <= rows; row += kRows) {
    move_to_row();
    t.a_ahead = fetches_rows && row + kRows < rows ? a + (row + kRows) * t.a_row
                                                   : nullptr;
    gemm_tile<kRows, kVecs, kLeft, kRight>(t);
    if (gemm_fetched_lines(kRight) == 1 && row < 2 * kRows) {
      t.ahead += t.k * t.ahead_step;
    } else {
      t.ahead_step = 0;
    }
  }
  t.a_ahead = nullptr;
  if (kRows > 4 && row + 4 <= rows) {
    move_to_row();
    gemm_tile<4, kVecs, kLeft, kRight>(t);
    row += 4;
  }
  if (row + 2 <= rows) {
    move_to_row();
    gemm_tile<2, kVecs, kLeft, kRight>(t);
    row += 2;
  }
  if (row < rows) {
    move_to_row();
    gemm_tile<1, kVecs, kLeft, kRight>(t);
  }
}

// `columns` is a multiple of kColumnStep, and c has room for all of them.
template <LeftSide kLeft, RightSide kRight>
HWY_INLINE void gemm_panel(GemmTile t, std::int64_t rows,
                           std::int64_t columns) {
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(GemmTag()));
  constexpr int kMost = gemm_tile_vecs(kLeft, kRight);
  std::int64_t left = columns / lanes;
  while (left > 0) {
    // 4 vectors go as 2 + 2, not 3 + 1: a narrow tile waits for its own sums.
    const std::int64_t groups = (left + kMost - 1) / kMost;
    const std::int64_t vecs = (left + groups - 1) / groups;
    switch (vecs) {
      case 3:
        gemm_rows<3, kLeft, kRight>(t, rows);
        break;
      case 2:
        gemm_rows<2, kLeft, kRight>(t, rows);
        break;
      default:
        gemm_rows<1, kLeft, kRight>(t, rows);
        break;
    }
    left -= vecs;
    t.b += vecs * lanes;
    t.c += vecs * lanes;
    if (t.bias != nullptr) t.bias += vecs * lanes;
    t.ahead_step = 0;
    t.a_ahead = nullptr;
  }
}

// A last packed panel whose columns are no multiple of kColumnStep: some rows
// at a time in a buffer, because vectors would reach past the rows of c.
template <LeftSide kLeft>
HWY_INLINE void gemm_edge(GemmTile t, std::int64_t rows, std::int64_t columns) {
  HWY_ALIGN float c[kGemmRowGrain * kPanelColumns];
  HWY_ALIGN float bias[kPanelColumns] = {};
  if (t.bias != nullptr) std::copy_n(t.bias, columns, bias);
  const std::int64_t stride = t.b_step;
  if (!t.from_zero) std::fill_n(c, kGemmRowGrain * stride, 0.0f);
  GemmTile tile = t;
  tile.c = c;
  tile.c_stride = stride;
  tile.bias = t.bias == nullptr ? nullptr : bias;
  for (std::int64_t row = 0; row < rows; row += kGemmRowGrain) {
    const std::int64_t count = std::min(kGemmRowGrain, rows - row);
    float* const c_row = t.c + row * t.c_stride;
    for (std::int64_t r = 0; r < count && !t.from_zero; ++r) {
      std::copy_n(c_row + r * t.c_stride, columns, c + r * stride);
    }
    tile.a = t.a + row * t.a_row;  // kGemmRows * depth a tile, if packed
    gemm_panel<kLeft, RightSide::kPacked>(tile, count, stride);
    for (std::int64_t r = 0; r < count; ++r) {
      std::copy_n(c + r * stride, columns, c_row + r * t.c_stride);
    }
  }
}

// Where the product stands: a panel, by its first column, and a cut of k.
struct GemmPlace {
  std::int64_t col = 0;
  std::int64_t i = 0;

  static std::int64_t panel_step(const Gemm& job, std::int64_t col) {
    const std::int64_t columns = std::min(kPanelColumns, job.n - col);
    return (columns + kColumnStep - 1) / kColumnStep * kColumnStep;
  }
  const float* b(const Gemm& job) const {
    if (job.right == RightSide::kRows) return job.b + i * job.b_stride + col;
    return job.b + col * job.k + i * panel_step(job, col);
  }
  // Along k to the end of a span, then the next panel, then the next span.
  GemmPlace next(const Gemm& job) const {
    const std::int64_t cut_end = std::min(i + gemm_depth(job.right), job.k);
    const std::int64_t span_size = gemm_span(job.right);
    const std::int64_t span = i / span_size * span_size;
    const bool span_ends = cut_end == job.k || cut_end % span_size == 0;
    if (!span_ends) return {col, cut_end};
    if (col + kPanelColumns < job.n) return {col + kPanelColumns, span};
    return {0, cut_end};
  }
  bool is_end(const Gemm& job) const { return col == 0 && i == job.k; }
};

HWY_INLINE bool gemm_streams(const Gemm& job) {
  constexpr std::int64_t kLine = 64;
  return kGemmMayStream && job.right == RightSide::kRows &&
         job.k <= kGemmRowsDepth && job.start == Start::kZero &&
         job.m * job.n >= kGemmStreamFloats &&
         reinterpret_cast<std::uintptr_t>(job.c) % kLine == 0 &&
         job.c_stride % kColumnStep == 0;
}

template <LeftSide kLeft, RightSide kRight>
HWY_INLINE void gemm_panels(const Gemm& job) {
  if (job.n == 0) return;
  GemmPlace place;
  do {
    const GemmPlace next = place.next(job);
    const std::int64_t columns = std::min(kPanelColumns, job.n - place.col);
    GemmTile t;
    t.k = std::min(gemm_depth(kRight), job.k - place.i);
    t.a = job.a + (kLeft == LeftSide::kPacked ? place.i * kGemmRows : place.i);
    t.a_row = kLeft == LeftSide::kPacked ? job.k : job.a_stride;
    t.b = place.b(job);
    t.b_step = kRight == RightSide::kRows
                   ? job.b_stride
                   : GemmPlace::panel_step(job, place.col);
    const bool cut_is_last = place.i + t.k == job.k;
    t.bias =
        job.bias != nullptr && cut_is_last ? job.bias + place.col : nullptr;
    t.c = job.c + place.col;
    t.c_stride = job.c_stride;
    t.from_zero = place.i == 0 && job.start == Start::kZero;
    t.streams = gemm_streams(job);
    t.a_ahead = kLeft == LeftSide::kRows && kRight == RightSide::kPacked &&
                        place.col == 0
                    ? t.a
                    : nullptr;
    if (kRight == RightSide::kRows) {
      t.ahead = cut_is_last ? t.b : t.b + t.k * job.b_stride;
      t.ahead_step = cut_is_last ? 0 : job.b_stride;
    } else {
      t.ahead = next.is_end(job) ? t.b : next.b(job);
      t.ahead_step = next.is_end(job) ? 0 : kColumnStep;
    }
    if (kRight == RightSide::kRows || columns % kColumnStep == 0) {
      gemm_panel<kLeft, kRight>(t, job.m, columns);
    } else {
      gemm_edge<kLeft>(t, job.m, columns);
    }
    place = next;
  } while (!place.is_end(job));
  // Before somebody is told that the result is there.
  if (gemm_streams(job)) hwy::FlushStream();
}

HWY_INLINE void pack_columns_impl(const float* HWY_RESTRICT b,
                                  std::int64_t stride, std::int64_t k,
                                  std::int64_t n, float* HWY_RESTRICT packed) {
  const GemmTag d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t col = 0; col < n; col += kPanelColumns) {
    const std::int64_t columns = std::min(kPanelColumns, n - col);
    const std::int64_t step =
        (columns + kColumnStep - 1) / kColumnStep * kColumnStep;
    const std::int64_t whole = columns / lanes * lanes;
    for (std::int64_t i = 0; i < k; ++i) {
      const float* const row = b + i * stride + col;
      std::int64_t j = 0;
      for (; j < whole; j += lanes) {
        hn::StoreU(hn::LoadU(d, row + j), d, packed + j);
      }
      for (; j < columns; ++j) packed[j] = row[j];
      for (; j < step; ++j) packed[j] = 0.0f;
      packed += step;
    }
  }
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void transpose_4x4(const float* HWY_RESTRICT from,
                              std::int64_t from_stride, float* HWY_RESTRICT to,
                              std::int64_t to_stride) {
  for (int r = 0; r < 4; ++r) {
    for (int i = 0; i < 4; ++i)
      to[i * to_stride + r] = from[r * from_stride + i];
  }
}
#else
// A block of 4 x 4 floats, transposed in registers: 16 single loads and stores
// would cost as much as the product does for a few dozen rows.
HWY_INLINE void transpose_4x4(const float* HWY_RESTRICT from,
                              std::int64_t from_stride, float* HWY_RESTRICT to,
                              std::int64_t to_stride) {
  const hn::Full128<float> d;
  const hn::RepartitionToWide<decltype(d)> dw;
  const auto r0 = hn::LoadU(d, from);
  const auto r1 = hn::LoadU(d, from + from_stride);
  const auto r2 = hn::LoadU(d, from + 2 * from_stride);
  const auto r3 = hn::LoadU(d, from + 3 * from_stride);
  const auto a = hn::BitCast(dw, hn::InterleaveLower(d, r0, r1));
  const auto b = hn::BitCast(dw, hn::InterleaveUpper(d, r0, r1));
  const auto c = hn::BitCast(dw, hn::InterleaveLower(d, r2, r3));
  const auto e = hn::BitCast(dw, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, a, c)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, a, c)), d, to + to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, b, e)), d,
             to + 2 * to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, b, e)), d,
             to + 3 * to_stride);
}
#endif

HWY_INLINE void pack_columns_transposed_impl(const float* HWY_RESTRICT b,
                                             std::int64_t stride,
                                             std::int64_t k, std::int64_t n,
                                             float* HWY_RESTRICT packed) {
  for (std::int64_t col = 0; col < n; col += kPanelColumns) {
    const std::int64_t columns = std::min(kPanelColumns, n - col);
    const std::int64_t step =
        (columns + kColumnStep - 1) / kColumnStep * kColumnStep;
    std::int64_t j = 0;
    for (; j + 4 <= columns; j += 4) {
      const float* const from = b + (col + j) * stride;
      std::int64_t i = 0;
      for (; i + 4 <= k; i += 4) {
        transpose_4x4(from + i, stride, packed + i * step + j, step);
      }
      for (; i < k; ++i) {
        for (int r = 0; r < 4; ++r)
          packed[i * step + j + r] = from[r * stride + i];
      }
    }
    for (; j < step; ++j) {
      for (std::int64_t i = 0; i < k; ++i) {
        packed[i * step + j] = j < columns ? b[(col + j) * stride + i] : 0.0f;
      }
    }
    packed += k * step;
  }
}

// What pack_rows_transposed reads and writes at a time: a tile's step of k may
// be less, so that a store reaches into the next step, which is packed later.
constexpr std::int64_t kPackedAtOnce = 8;

// kTiles whole tiles from a. All but the last read on into the next.
template <int kTiles>
HWY_INLINE void pack_row_tiles(const float* HWY_RESTRICT a, std::int64_t stride,
                               std::int64_t k, float* HWY_RESTRICT packed) {
  const hn::CappedTag<float, kPackedAtOnce> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t tile = kGemmRows * k;
  for (std::int64_t i = 0; i + 1 < k; ++i) {
    HWY_UNROLL(4)
    for (int t = 0; t < kTiles; ++t) {
      for (std::int64_t r = 0; r < kGemmRows; r += lanes) {
        hn::StoreU(hn::LoadU(d, a + t * kGemmRows + r), d,
                   packed + t * tile + r);
      }
    }
    a += stride;
    packed += kGemmRows;
  }
  for (int t = 0; t < kTiles; ++t) {
    std::copy_n(a + t * kGemmRows, kGemmRows, packed + t * tile);
  }
}

HWY_INLINE void pack_rows_transposed_impl(const float* HWY_RESTRICT a,
                                          std::int64_t stride, std::int64_t m,
                                          std::int64_t k,
                                          float* HWY_RESTRICT packed) {
  if (k == 0) return;
  constexpr std::int64_t kOver = kPackedAtOnce - kGemmRows;
  // Several tiles at once, so that a line of a is fetched once: where the rows
  // of a lie a power of two apart, it is gone from the L1 cache before the next
  // tile wants it.
  constexpr int kTiles = kGemmRowGrain / kGemmRows;
  std::int64_t row = 0;
  for (; row + kGemmRowGrain + kOver <= m; row += kGemmRowGrain) {
    pack_row_tiles<kTiles>(a + row, stride, k, packed + row * k);
  }
  for (; row + kGemmRows + kOver <= m; row += kGemmRows) {
    pack_row_tiles<1>(a + row, stride, k, packed + row * k);
  }
  for (; row < m; row += kGemmRows) {
    const std::int64_t rows = std::min<std::int64_t>(kGemmRows, m - row);
    float* to = packed + row * k;
    for (std::int64_t i = 0; i < k; ++i, to += kGemmRows) {
      std::copy_n(a + i * stride + row, rows, to);
      std::fill(to + rows, to + kGemmRows, 0.0f);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // REGARD_KERNELS_GEMM_INL_H_
