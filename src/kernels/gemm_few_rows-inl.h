// SPDX-License-Identifier: Apache-2.0
// Included once for each target; no include guard of the usual kind.
#if defined(REGARD_KERNELS_GEMM_FEW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_GEMM_FEW_ROWS_INL_H_
#undef REGARD_KERNELS_GEMM_FEW_ROWS_INL_H_
#else
#define REGARD_KERNELS_GEMM_FEW_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/gemm.h"

// Products of few rows with a right side that lies transposed in memory, as
// weights do: to pack it would cost as much as the product. Lanes are rows of
// a, and b is read once, front to back.
HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FewRowsTag = hn::CappedTag<float, 16>;
using FewRowsVec = hn::Vec<FewRowsTag>;
constexpr int kFewRowsVecs = 2;
// Of a [rows, kFewRowsDepth], transposed, on the stack.
constexpr std::int64_t kFewRowsDepth = 512;
static_assert(kFewRowsDepth % kGemmChain == 0);

struct FewRowsTile {
  const float* a;  // [k][kVecs vectors]
  const float* b;  // [columns][b_stride]
  std::int64_t b_stride;
  const float* bias;  // of the first column, or null
  float* c;           // of the first row and column
  std::int64_t c_stride;
  std::int64_t rows, k;
  bool from_zero;
};

template <int kColumns, int kVecs>
HWY_INLINE void few_rows_tile(const FewRowsTile& t) {
  const FewRowsTag d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = kVecs * lanes;
  HWY_ALIGN float total[kColumns * kVecs * hn::MaxLanes(FewRowsTag())] = {};
  if (!t.from_zero) {
    for (std::int64_t r = 0; r < t.rows; ++r) {
      for (int j = 0; j < kColumns; ++j) {
        total[j * width + r] = t.c[r * t.c_stride + j];
      }
    }
  }
  const float* HWY_RESTRICT a = t.a;
  std::int64_t i = 0;
  do {
    FewRowsVec sum[kColumns][kVecs];
    HWY_UNROLL(8)
    for (int j = 0; j < kColumns; ++j) {
      HWY_UNROLL(2)
      for (int v = 0; v < kVecs; ++v) sum[j][v] = hn::Zero(d);
    }
    const bool from_zero = t.from_zero && i == 0;
    for (const std::int64_t end = std::min(i + kGemmChain, t.k); i < end; ++i) {
      FewRowsVec left[kVecs];
      HWY_UNROLL(2)
      for (int v = 0; v < kVecs; ++v) left[v] = hn::Load(d, a + v * lanes);
      HWY_UNROLL(8)
      for (int j = 0; j < kColumns; ++j) {
        const FewRowsVec right = hn::Set(d, t.b[j * t.b_stride + i]);
        HWY_UNROLL(2)
        for (int v = 0; v < kVecs; ++v) {
          sum[j][v] = hn::MulAdd(left[v], right, sum[j][v]);
        }
      }
      a += width;
    }
    HWY_UNROLL(8)
    for (int j = 0; j < kColumns; ++j) {
      HWY_UNROLL(2)
      for (int v = 0; v < kVecs; ++v) {
        float* const at = total + j * width + v * lanes;
        const FewRowsVec x =
            from_zero ? sum[j][v] : hn::Add(hn::Load(d, at), sum[j][v]);
        hn::Store(x, d, at);
      }
    }
  } while (i < t.k);
  for (std::int64_t r = 0; r < t.rows; ++r) {
    for (int j = 0; j < kColumns; ++j) {
      const float x = total[j * width + r];
      t.c[r * t.c_stride + j] = t.bias == nullptr ? x : x + t.bias[j];
    }
  }
}

// All columns for so many rows as kVecs vectors hold.
template <int kVecs>
HWY_NOINLINE void few_rows_columns(const Gemm& job, std::int64_t row,
                                   std::int64_t rows) {
  constexpr int kColumns = 8 / kVecs;
  const std::int64_t width =
      kVecs * static_cast<std::int64_t>(hn::Lanes(FewRowsTag()));
  HWY_ALIGN float a[kFewRowsDepth * kVecs * hn::MaxLanes(FewRowsTag())];
  std::int64_t i = 0;
  do {
    const std::int64_t depth = std::min(kFewRowsDepth, job.k - i);
    const float* const from = job.a + row * job.a_stride + i;
    for (std::int64_t r = 0; r < width; ++r) {
      for (std::int64_t at = 0; at < depth; ++at) {
        a[at * width + r] = r < rows ? from[r * job.a_stride + at] : 0.0f;
      }
    }
    FewRowsTile t{.a = a,
                  .b = nullptr,
                  .b_stride = job.b_stride,
                  .bias = nullptr,
                  .c = nullptr,
                  .c_stride = job.c_stride,
                  .rows = rows,
                  .k = depth,
                  .from_zero = i == 0 && job.start == Start::kZero};
    const auto move_to = [&](std::int64_t column) {
      t.b = job.b + column * job.b_stride + i;
      t.c = job.c + row * job.c_stride + column;
      if (job.bias != nullptr && i + depth == job.k) t.bias = job.bias + column;
    };
    std::int64_t column = 0;
    for (; column + kColumns <= job.n; column += kColumns) {
      move_to(column);
      few_rows_tile<kColumns, kVecs>(t);
    }
    for (; column < job.n; ++column) {
      move_to(column);
      few_rows_tile<1, kVecs>(t);
    }
    i += depth;
  } while (i < job.k);
}

HWY_INLINE void gemm_few_rows(const Gemm& job) {
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(FewRowsTag()));
  for (std::int64_t row = 0; row < job.m; row += kFewRowsVecs * lanes) {
    const std::int64_t rows = std::min(kFewRowsVecs * lanes, job.m - row);
    if (rows > lanes) {
      few_rows_columns<2>(job, row, rows);
    } else {
      few_rows_columns<1>(job, row, rows);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // REGARD_KERNELS_GEMM_FEW_ROWS_INL_H_
