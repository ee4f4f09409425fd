// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "regard/autograd/tape.h"
#include "regard/core/threads.h"

// The three matrix products of a linear layer, cut into blocks for threads.
// Every element is one chain of fused multiply-adds in index order, so the cut
// changes no bit.
namespace regard::autograd {

// Rows [rows, width], `stride` floats apart.
struct ConstRows {
  const float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t stride = 0;
};
struct Rows {
  float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t stride = 0;
};

// Work on the rows [begin, end) beside the product, while they are in the
// cache.
using RowsBody = FunctionRef<void(std::int64_t begin, std::int64_t end)>;

inline constexpr auto no_rows = [](std::int64_t, std::int64_t) {};

// weight [out, in] in the order that multiply() reads for x weight^T.
std::shared_ptr<float> pack_for_forward(ConstRows weight, MemoryPool& pool,
                                        Threads threads);
// The same for d_y weight.
std::shared_ptr<float> pack_for_backward(ConstRows weight, MemoryPool& pool,
                                         Threads threads);

// So few rows that packing a weight for them would cost more than it brings,
// where the weight can be read as it is: see kernels::RightSide.
bool reads_as_rows(std::int64_t rows, std::int64_t width);

// y = x b + bias, b [x.width, y.width], packed or as it is. bias may be null.
struct RowProduct {
  ConstRows x;
  const float* packed = nullptr;
  ConstRows rows = {};  // where packed is null
  const float* bias = nullptr;
  Rows y;
  bool add = false;  // to what y holds
};
// `before` prepares rows of x; `after` takes finished rows of y. Both are given
// each row once.
void multiply(const RowProduct& product, Threads threads,
              RowsBody before = no_rows, RowsBody after = no_rows);

// d_weight += d_y^T x, and d_bias += the column sums of d_y; or =, with `add`
// false. Null: not wanted.
struct WeightProduct {
  ConstRows d_y;              // [rows, out]
  ConstRows x;                // [rows, in]
  float* d_weight = nullptr;  // [out, in]
  std::int64_t d_weight_stride = 0;
  float* d_bias = nullptr;  // [out]
  bool add = true;
};
void add_weight_gradient(const WeightProduct& product, MemoryPool& pool,
                         Threads threads);

// body(begin, end) over all rows, in blocks of so many.
void over_row_blocks(Threads threads, std::int64_t rows, std::int64_t block,
                     RowsBody body);

}  // namespace regard::autograd
