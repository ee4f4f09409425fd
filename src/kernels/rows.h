// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Small passes over rows that stand between the products of a layer. Each works
// on a block of rows that is still in the cache.
namespace regard::kernels {

// Which elements of a matrix are dropped. A pure function of the seed, the site
// (which matrix of a model), the row and the column: element (r, c) draws word
// (c / 16) % 4 of philox({c / 64 * 16 + c % 16, r, site, 0}, seed), and is
// dropped where the word is below the threshold.
struct RowDropout {
  std::uint64_t seed = 0;
  std::uint32_t site = 0;
  std::uint32_t threshold = 0;  // 0: nothing is dropped
  float factor = 1.0f;          // of the others, 1 / (1 - rate)
};

// y = dropout(x) + residual for rows of `width` elements, all contiguous. The
// first is row `first_row` of the matrix. residual may be null for zeros; y may
// be x or residual.
struct DropoutAdd {
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t first_row = 0;
  const float* x = nullptr;
  const float* residual = nullptr;
  float* y = nullptr;
};
void dropout_add(const DropoutAdd& job, const RowDropout& dropout) noexcept;

// y += factor * x
void add_scaled(const float* x, float factor, std::int64_t n,
                float* y) noexcept;

// y = factor * x + z; z may be null for zeros.
void scale_add(const float* x, float factor, const float* z, std::int64_t n,
               float* y) noexcept;

// sums[c] += the sum of x[r][c] over the rows, in blocks of kSumBlock rows that
// start at row 0: within a block in index order, then block after block.
inline constexpr std::int64_t kSumBlock = 64;
void add_column_sums(const float* x, std::int64_t stride, std::int64_t rows,
                     std::int64_t columns, float* sums) noexcept;

}  // namespace regard::kernels
