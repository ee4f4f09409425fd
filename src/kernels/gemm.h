// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Matrix products in the canonical order: an element of the result is the sum,
// in index order, of chains of fused multiply-adds over kGemmChain steps of k,
// each from zero. So its bits depend on its row, its column and nothing else;
// not on the sizes, the blocks or the vector width.
//
// The right side is packed into panels that a tile reads front to back. The
// layout is the same on every target: panels of kPanelColumns columns, the last
// one cut to a multiple of kColumnStep and filled with zeros, each
// [k][columns].
namespace regard::kernels {

inline constexpr std::int64_t kPanelColumns = 48;
inline constexpr std::int64_t kColumnStep = 16;
// Blocks of rows are best multiples of this: the rows of every target's tile
// divide it.
inline constexpr std::int64_t kGemmRowGrain = 24;
inline constexpr std::int64_t kGemmChain = 64;

// The floats that packing a right side [k, n] takes. Panel p starts at float
// p * kPanelColumns * k.
constexpr std::int64_t packed_columns_size(std::int64_t k, std::int64_t n) {
  return k * ((n + kColumnStep - 1) / kColumnStep * kColumnStep);
}

// The floats that packing a left side [m, k] takes.
constexpr std::int64_t packed_rows_size(std::int64_t m, std::int64_t k) {
  return k * ((m + kGemmRowGrain - 1) / kGemmRowGrain * kGemmRowGrain);
}

// Packs the right side b [k, n], row i at b + i * stride.
void pack_columns(const float* b, std::int64_t stride, std::int64_t k,
                  std::int64_t n, float* packed) noexcept;

// The same from its transpose b [n, k], which is how weights [out, in] are
// kept.
void pack_columns_transposed(const float* b, std::int64_t stride,
                             std::int64_t k, std::int64_t n,
                             float* packed) noexcept;

// Packs the left side from its transpose a [k, m] into tiles of as many rows as
// the target's kernel takes, each [k][rows], the last one filled with zeros.
void pack_rows_transposed(const float* a, std::int64_t stride, std::int64_t m,
                          std::int64_t k, float* packed) noexcept;

enum class LeftSide {
  kRows,    // a [m, k], row i at a + i * a_stride
  kPacked,  // by pack_rows_transposed; a_stride is not used
};
enum class RightSide {
  kPacked,  // by pack_columns
  // For at most kFewRows rows of a, where packing b would cost more:
  kRows,        // b [k, n], row i at b + i * b_stride, n a multiple of
                // kColumnStep
  kTransposed,  // b^T [n, k], row j at b + j * b_stride; a left side of kRows
};
// More are right, too, and slower than with b packed.
inline constexpr std::int64_t kFewRows = 16;

enum class Start {
  kZero,    // the sum of the chains
  kResult,  // what c holds, then the chains: sums continue
};

// c = a b + bias. The bias is added last, after the chains.
struct Gemm {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  LeftSide left = LeftSide::kRows;
  const float* a = nullptr;
  std::int64_t a_stride = 0;
  RightSide right = RightSide::kPacked;
  const float* b = nullptr;
  std::int64_t b_stride = 0;    // of kRows and kTransposed
  const float* bias = nullptr;  // [n], or null for none
  float* c = nullptr;           // [m, n], row i at c + i * c_stride
  std::int64_t c_stride = 0;
  Start start = Start::kZero;
};

// The rows to give at a time: what is used of a [rows, k] at once stays in the
// L2 cache while the panels pass over it, and a panel serves enough rows to be
// worth fetching.
inline constexpr std::int64_t kGemmBlockRows = 5 * kGemmRowGrain;

// Any size may be zero; with k = 0 the chains are empty and the bias is still
// added. A caller cuts a larger m into kGemmBlockRows, and between them, or
// between panels of n, for threads.
void gemm(const Gemm& job) noexcept;

}  // namespace regard::kernels
