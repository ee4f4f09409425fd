// SPDX-License-Identifier: Apache-2.0
#include "autograd/products.h"

#include <algorithm>

#include "kernels/gemm.h"
#include "kernels/rows.h"
#include "regard/core/aligned_buffer.h"

namespace regard::autograd {
namespace {

// Below so many multiply-adds another thread costs more than it brings.
constexpr std::int64_t kWorthAThread = 1 << 18;
// The same for floats that are only moved.
constexpr std::int64_t kWorthAThreadMoved = 1 << 16;

std::int64_t blocks_of(std::int64_t size, std::int64_t block) {
  return (size + block - 1) / block;
}

Threads at_most(Threads threads, std::int64_t work, std::int64_t worth) {
  const int count =
      thread_count(threads, std::max<std::int64_t>(1, work / worth));
  return {count, threads.pool};
}

// Calls body(first panel's column, columns) for groups of panels.
void over_panels(Threads threads, std::int64_t columns,
                 FunctionRef<void(std::int64_t, std::int64_t)> body) {
  constexpr std::int64_t kGroup = 4 * kernels::kPanelColumns;
  parallel_for(threads, blocks_of(columns, kGroup), [&](std::int64_t i) {
    body(i * kGroup, std::min(kGroup, columns - i * kGroup));
  });
}

}  // namespace

void over_row_blocks(Threads threads, std::int64_t rows, std::int64_t block,
                     RowsBody body) {
  parallel_for(threads, blocks_of(rows, block), [&](std::int64_t i) {
    body(i * block, std::min(rows, (i + 1) * block));
  });
}

std::shared_ptr<float> pack_for_forward(ConstRows weight, MemoryPool& pool,
                                        Threads threads) {
  const std::int64_t k = weight.width;
  const std::int64_t n = weight.rows;
  std::shared_ptr<float> packed = pool.take(kernels::packed_columns_size(k, n));
  over_panels(at_most(threads, k * n, kWorthAThreadMoved), n,
              [&](std::int64_t column, std::int64_t columns) {
                kernels::pack_columns_transposed(
                    weight.data + column * weight.stride, weight.stride, k,
                    columns, packed.get() + column * k);
              });
  return packed;
}

std::shared_ptr<float> pack_for_backward(ConstRows weight, MemoryPool& pool,
                                         Threads threads) {
  const std::int64_t k = weight.rows;
  const std::int64_t n = weight.width;
  std::shared_ptr<float> packed = pool.take(kernels::packed_columns_size(k, n));
  over_panels(at_most(threads, k * n, kWorthAThreadMoved), n,
              [&](std::int64_t column, std::int64_t columns) {
                kernels::pack_columns(weight.data + column, weight.stride, k,
                                      columns, packed.get() + column * k);
              });
  return packed;
}

bool reads_as_rows(std::int64_t rows, std::int64_t width) {
  return rows <= 2 * kernels::kTileRows && width % kernels::kColumnStep == 0;
}

void multiply(const RowProduct& p, Threads threads, RowsBody before,
              RowsBody after) {
  const std::int64_t k = p.x.width;
  const std::int64_t n = p.y.width;
  if (p.y.rows == 0 || n == 0) return;
  threads = at_most(threads, p.y.rows * n * k, kWorthAThread);
  // Blocks of equal size, so that no thread is left with a rest.
  std::int64_t row_blocks = blocks_of(p.y.rows, kernels::kGemmBlockRows);
  const std::int64_t rows =
      blocks_of(blocks_of(p.y.rows, row_blocks), kernels::kTileRows) *
      kernels::kTileRows;
  row_blocks = blocks_of(p.y.rows, rows);
  const auto block = [&](std::int64_t row, std::int64_t column,
                         std::int64_t columns) {
    kernels::gemm(
        {.m = std::min(rows, p.y.rows - row),
         .n = columns,
         .k = k,
         .a = p.x.data + row * p.x.stride,
         .a_stride = p.x.stride,
         .right = p.packed != nullptr ? kernels::RightSide::kPacked
                                      : kernels::RightSide::kRows,
         .b =
             p.packed != nullptr ? p.packed + column * k : p.rows.data + column,
         .b_stride = p.rows.stride,
         .bias = p.bias == nullptr ? nullptr : p.bias + column,
         .c = p.y.data + row * p.y.stride + column,
         .c_stride = p.y.stride,
         .start = p.add ? kernels::Start::kResult : kernels::Start::kZero});
  };
  const std::int64_t panels = blocks_of(n, kernels::kPanelColumns);
  if (row_blocks >= 2 * threads.count || threads.count == 1 || panels == 1) {
    parallel_for(threads, row_blocks, [&](std::int64_t i) {
      const std::int64_t end = std::min(p.y.rows, (i + 1) * rows);
      before(i * rows, end);
      block(i * rows, 0, n);
      after(i * rows, end);
    });
    return;
  }
  // Few rows leave threads without work: cut the columns too, between panels.
  before(0, p.y.rows);
  const std::int64_t wanted = blocks_of(3 * threads.count, row_blocks);
  const std::int64_t columns =
      blocks_of(panels, std::min(wanted, panels)) * kernels::kPanelColumns;
  const std::int64_t column_blocks = blocks_of(n, columns);
  parallel_for(threads, row_blocks * column_blocks, [&](std::int64_t i) {
    const std::int64_t column = i % column_blocks * columns;
    block(i / column_blocks * rows, column, std::min(columns, n - column));
  });
  after(0, p.y.rows);
}

void add_weight_gradient(const WeightProduct& p, MemoryPool& pool,
                         Threads threads) {
  // Both sides of so many rows stay in the cache while they are multiplied.
  constexpr std::int64_t kRun = 256;
  const std::int64_t rows = p.d_y.rows;
  const std::int64_t out = p.d_y.width;
  const std::int64_t in = p.x.width;
  if (rows == 0 || out == 0) return;
  threads = at_most(threads, rows * out * in, kWorthAThread);
  std::shared_ptr<float> packed;
  const bool as_rows = reads_as_rows(rows, in);
  if (p.d_weight != nullptr && !as_rows) {
    packed = pool.take(kernels::packed_columns_size(rows, in));
    over_row_blocks(
        threads, rows, kRun, [&](std::int64_t begin, std::int64_t end) {
          kernels::pack_columns(
              p.x.data + begin * p.x.stride, p.x.stride, end - begin, in,
              packed.get() + kernels::packed_columns_size(begin, in));
        });
  }
  // A task owns some rows of the weight and adds one run after the other.
  const std::int64_t most = 32 * kernels::kTileRows;
  const std::int64_t block =
      std::min(most, blocks_of(out, 4 * threads.count * kernels::kTileRows) *
                         kernels::kTileRows);
  over_row_blocks(
      threads, out, threads.count == 1 ? most : block,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = 0; row < rows && p.d_weight != nullptr;
             row += kRun) {
          const std::int64_t count = std::min(kRun, rows - row);
          auto* const left = reinterpret_cast<float*>(
              thread_scratch(static_cast<std::size_t>(kernels::packed_rows_size(
                                 end - begin, count)) *
                             sizeof(float)));
          kernels::pack_rows_transposed(p.d_y.data + row * p.d_y.stride + begin,
                                        p.d_y.stride, end - begin, count, left);
          kernels::gemm(
              {.m = end - begin,
               .n = in,
               .k = count,
               .left = kernels::LeftSide::kPacked,
               .a = left,
               .right = as_rows ? kernels::RightSide::kRows
                                : kernels::RightSide::kPacked,
               .b = as_rows
                        ? p.x.data
                        : packed.get() + kernels::packed_columns_size(row, in),
               .b_stride = p.x.stride,
               .c = p.d_weight + begin * p.d_weight_stride,
               .c_stride = p.d_weight_stride,
               .start = p.add || row > 0 ? kernels::Start::kResult
                                         : kernels::Start::kZero});
        }
        if (p.d_bias != nullptr) {
          if (!p.add) std::fill(p.d_bias + begin, p.d_bias + end, 0.0f);
          kernels::add_column_sums(p.d_y.data + begin, p.d_y.stride, rows,
                                   end - begin, p.d_bias + begin);
        }
      });
}

}  // namespace regard::autograd
