// SPDX-License-Identifier: Apache-2.0
#include "nn/products.h"

#include <algorithm>
#include <array>
#include <vector>

#include "regard/core/aligned_buffer.h"

namespace regard::nn::detail {
namespace {

// Below so many multiply-adds another thread costs more than it brings.
constexpr std::int64_t kWorthAThread = 1 << 20;

// How one product is cut: batch entries (joined into one if their rows follow
// each other), then rows, then columns.
struct Cut {
  std::int64_t entries = 0, rows = 0;
  std::int64_t block_rows = 0, block_columns = 0;
  std::int64_t row_blocks = 0, column_blocks = 0;

  std::int64_t tasks() const { return entries * row_blocks * column_blocks; }
};

std::int64_t blocks_of(std::int64_t size, std::int64_t block) {
  return (size + block - 1) / block;
}

template <typename T>
bool rows_follow(const TensorView<T, 3>& view) {
  return view.extent(0) == 1 ||
         view.stride(0) == view.extent(1) * view.stride(1);
}

Cut cut(const Product& product, int threads) {
  Cut c;
  const std::int64_t columns = product.output.extent(2);
  c.entries = product.output.extent(0);
  c.rows = product.output.extent(1);
  if (rows_follow(product.input) && rows_follow(product.output)) {
    c.rows *= c.entries;
    c.entries = 1;
  }
  if (c.entries == 0 || c.rows == 0 || columns == 0) return {};
  // Blocks of equal size, so that no thread is left with a rest.
  c.row_blocks = blocks_of(c.rows, kernels::gemm_rows(product.input.extent(2)));
  c.block_rows =
      blocks_of(blocks_of(c.rows, c.row_blocks), kernels::kTileRows) *
      kernels::kTileRows;
  c.row_blocks = blocks_of(c.rows, c.block_rows);
  // Few rows leave threads without work: cut the columns too, between panels.
  const std::int64_t panels = blocks_of(columns, kernels::kPanelColumns);
  const std::int64_t wanted =
      threads == 1 ? 1 : blocks_of(3 * threads, c.entries * c.row_blocks);
  const std::int64_t block_panels = blocks_of(panels, std::min(wanted, panels));
  c.block_columns = block_panels * kernels::kPanelColumns;
  c.column_blocks = blocks_of(columns, c.block_columns);
  return c;
}

void multiply_block(const Product& product, const Cut& c, std::int64_t task) {
  const std::int64_t columns = product.output.extent(2);
  const std::int64_t column = task % c.column_blocks * c.block_columns;
  const std::int64_t row = task / c.column_blocks % c.row_blocks * c.block_rows;
  const std::int64_t entry = task / c.column_blocks / c.row_blocks;
  const std::int64_t in = product.input.extent(2);
  kernels::gemm(
      {.m = std::min(c.block_rows, c.rows - row),
       .n = std::min(c.block_columns, columns - column),
       .k = in,
       .a = product.input.at(entry, row),
       .a_stride = product.input.stride(1),
       .b = product.packed->values<float>().data() + column * in,
       .bias = product.bias == nullptr ? nullptr : product.bias + column,
       .c = product.output.at(entry, row) + column,
       .c_stride = product.output.stride(1),
       .start = product.start});
}

}  // namespace

Tensor packed_weight(TensorView<const float, 2> weight) {
  const std::int64_t out = weight.extent(0);
  const std::int64_t in = weight.extent(1);
  Tensor packed({kernels::packed_columns_size(in, out)});
  kernels::pack_columns_transposed(weight.data(), weight.stride(0), in, out,
                                   packed.values<float>().data());
  return packed;
}

void multiply(std::span<const Product> products, Threads threads) {
  std::int64_t work = 0;
  for (const Product& p : products) work += p.output.size() * p.input.extent(2);
  if (work < kWorthAThread) threads.count = 1;
  const int count =
      thread_count(threads, std::max<std::int64_t>(1, work / kWorthAThread));
  std::vector<Cut> cuts;
  std::int64_t tasks = 0;
  for (const Product& p : products) {
    cuts.push_back(cut(p, count));
    tasks += cuts.back().tasks();
  }
  parallel_for(threads, tasks, [&](std::int64_t task) {
    std::size_t i = 0;
    for (; task >= cuts[i].tasks(); ++i) task -= cuts[i].tasks();
    multiply_block(products[i], cuts[i], task);
  });
}

void input_gradient(const InputGradient& g, Threads threads) {
  const std::int64_t k = g.weight.extent(0);
  const std::int64_t n = g.weight.extent(1);
  Tensor packed({kernels::packed_columns_size(k, n)});
  kernels::pack_columns(g.weight.data(), g.weight.stride(0), k, n,
                        packed.values<float>().data());
  const std::array<Product, 1> product{
      Product{g.d_output, &packed, nullptr, g.d_input,
              g.add ? kernels::Start::kResult : kernels::Start::kZero}};
  multiply(product, threads);
}

namespace {

// Some successive rows of one batch entry.
struct RowRun {
  std::int64_t entry, first, count;
};

// All rows in order, in runs short enough for a run of both sides to stay in
// cache while it is multiplied.
std::vector<RowRun> row_runs(const TensorView<const float, 3>& rows) {
  constexpr std::int64_t kRun = 256;
  std::vector<RowRun> runs;
  for (std::int64_t b = 0; b < rows.extent(0); ++b) {
    for (std::int64_t i = 0; i < rows.extent(1); i += kRun) {
      runs.push_back({b, i, std::min(kRun, rows.extent(1) - i)});
    }
  }
  return runs;
}

// d_bias[begin, end) <- the sums of d_output's columns.
void sum_rows(const WeightGradient& g, std::int64_t begin, std::int64_t end) {
  std::vector<double> sums(static_cast<std::size_t>(end - begin));
  for (std::int64_t b = 0; b < g.d_output.extent(0); ++b) {
    for (std::int64_t i = 0; i < g.d_output.extent(1); ++i) {
      const float* const row = g.d_output.at(b, i) + begin;
      for (std::size_t c = 0; c < sums.size(); ++c) {
        sums[c] += static_cast<double>(row[c]);
      }
    }
  }
  for (std::size_t c = 0; c < sums.size(); ++c) {
    g.d_bias[begin + static_cast<std::int64_t>(c)] =
        static_cast<float>(sums[c]);
  }
}

}  // namespace

void weight_gradient(const WeightGradient& g, Threads threads) {
  const std::int64_t out = g.d_weight.extent(0);
  const std::int64_t in = g.d_weight.extent(1);
  const std::vector<RowRun> runs = row_runs(g.input);
  std::int64_t rows = 0;
  std::vector<std::int64_t> starts;  // of a run's packed input
  for (const RowRun& run : runs) {
    starts.push_back(kernels::packed_columns_size(rows, in));
    rows += run.count;
  }
  if (rows * out * in < kWorthAThread) threads.count = 1;

  AlignedBuffer memory(
      static_cast<std::size_t>(kernels::packed_columns_size(rows, in)) *
      sizeof(float));
  auto* const packed = reinterpret_cast<float*>(memory.data());
  parallel_for(threads, static_cast<std::int64_t>(runs.size()),
               [&](std::int64_t i) {
                 const RowRun& run = runs[i];
                 kernels::pack_columns(g.input.at(run.entry, run.first),
                                       g.input.stride(1), run.count, in,
                                       packed + starts[i]);
               });
  // A thread owns some rows of the weight and adds one run after the other.
  constexpr std::int64_t kBlock = 8 * kernels::kTileRows;
  parallel_for(threads, blocks_of(out, kBlock), [&](std::int64_t task) {
    const std::int64_t begin = task * kBlock;
    const std::int64_t end = std::min(out, begin + kBlock);
    for (std::int64_t r = begin; r < end; ++r) {
      std::fill_n(g.d_weight.at(r), in, 0.0f);
    }
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const RowRun& run = runs[i];
      auto* const left = reinterpret_cast<float*>(
          thread_scratch(static_cast<std::size_t>(kernels::packed_rows_size(
                             end - begin, run.count)) *
                         sizeof(float)));
      kernels::pack_rows_transposed(g.d_output.at(run.entry, run.first) + begin,
                                    g.d_output.stride(1), end - begin,
                                    run.count, left);
      kernels::gemm({.m = end - begin,
                     .n = in,
                     .k = run.count,
                     .left = kernels::LeftSide::kPacked,
                     .a = left,
                     .b = packed + starts[i],
                     .c = g.d_weight.at(begin),
                     .c_stride = g.d_weight.stride(0),
                     .start = kernels::Start::kResult});
    }
    if (g.d_bias != nullptr) sum_rows(g, begin, end);
  });
}

}  // namespace regard::nn::detail
