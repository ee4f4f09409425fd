// SPDX-License-Identifier: Apache-2.0
#include "nn/products.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "autograd/products.h"
#include "core/kept_memory.h"
#include "kernels/bf16_gemm.h"
#include "regard/core/aligned_buffer.h"

namespace regard::nn::detail {
namespace {

// Below so many multiply-adds another thread costs more than it brings.
constexpr std::int64_t kWorthAThread = 1 << 20;

bool in_bf16(const Product& product) {
  return product.packed->dtype() == DType::kBFloat16;
}

// What the kernel wants to be given at a time, and where it may be cut.
struct Grain {
  std::int64_t block_rows, tile_rows, panel_columns;
};

Grain grain_of(const Product& product) {
  const std::int64_t in = product.input.extent(2);
  if (in_bf16(product)) {
    return {kernels::bf16_gemm_rows(in), kernels::kPanelRows,
            kernels::kBf16PanelColumns};
  }
  return {kernels::kGemmBlockRows, kernels::kTileRows, kernels::kPanelColumns};
}

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
  const Grain grain = grain_of(product);
  c.row_blocks = blocks_of(c.rows, grain.block_rows);
  c.block_rows = blocks_of(blocks_of(c.rows, c.row_blocks), grain.tile_rows) *
                 grain.tile_rows;
  c.row_blocks = blocks_of(c.rows, c.block_rows);
  // Few rows leave threads without work: cut the columns too, between panels.
  const std::int64_t panels = blocks_of(columns, grain.panel_columns);
  const std::int64_t wanted =
      threads == 1 ? 1 : blocks_of(3 * threads, c.entries * c.row_blocks);
  const std::int64_t block_panels = blocks_of(panels, std::min(wanted, panels));
  c.block_columns = block_panels * grain.panel_columns;
  c.column_blocks = blocks_of(columns, c.block_columns);
  return c;
}

void multiply_block(const Product& product, const Cut& c, std::int64_t task) {
  const std::int64_t columns = product.output.extent(2);
  const std::int64_t column = task % c.column_blocks * c.block_columns;
  const std::int64_t row = task / c.column_blocks % c.row_blocks * c.block_rows;
  const std::int64_t entry = task / c.column_blocks / c.row_blocks;
  const std::int64_t in = product.input.extent(2);
  const std::int64_t m = std::min(c.block_rows, c.rows - row);
  const std::int64_t n = std::min(c.block_columns, columns - column);
  if (in_bf16(product)) {
    kernels::bf16_gemm(
        {.m = m,
         .n = n,
         .k = in,
         .a = {product.input.at(entry, row), kernels::Storage::kFloat32,
               product.input.stride(1)},
         .b = reinterpret_cast<const kernels::Bf16Bits*>(
                  product.packed->values<BFloat16>().data()) +
              kernels::bf16_packed_size(column, in),
         .bias = product.bias == nullptr ? nullptr : product.bias + column,
         .c = product.output.at(entry, row) + column,
         .c_stride = product.output.stride(1)},
        thread_scratch(kernels::bf16_gemm_scratch_bytes(m, in)));
    return;
  }
  kernels::gemm(
      {.m = m,
       .n = n,
       .k = in,
       .a = product.input.at(entry, row),
       .a_stride = product.input.stride(1),
       .b = product.packed->values<float>().data() + column * in,
       .bias = product.bias == nullptr ? nullptr : product.bias + column,
       .c = product.output.at(entry, row) + column,
       .c_stride = product.output.stride(1),
       .start = product.start});
}

// Batch entries whose rows stand an equal distance apart: all as one, or each
// on its own.
struct Entries {
  std::int64_t index, rows;
};

template <typename A, typename B>
std::vector<Entries> entries_of(const TensorView<A, 3>& a,
                                const TensorView<B, 3>& b) {
  if (rows_follow(a) && rows_follow(b)) {
    return {{0, a.extent(0) * a.extent(1)}};
  }
  std::vector<Entries> entries;
  for (std::int64_t i = 0; i < a.extent(0); ++i) {
    entries.push_back({i, a.extent(1)});
  }
  return entries;
}

// For what a call packs, kept for the thread's next one until
// release_thread_scratch(): fresh pages would cost more than packing does.
std::optional<autograd::MemoryPool>& kept_pack_memory() {
  thread_local std::optional<autograd::MemoryPool> pool;
  return pool;
}

autograd::MemoryPool& pack_memory() {
  constexpr std::size_t kMostKept = std::size_t{64} << 20;
  [[maybe_unused]] thread_local const bool known = [] {
    regard::detail::release_with_scratch(
        []() noexcept { kept_pack_memory().reset(); });
    return true;
  }();
  auto& pool = kept_pack_memory();
  if (!pool || pool->peak_bytes() > kMostKept) pool.emplace();
  return *pool;
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

Tensor packed_bf16_weight(TensorView<const float, 2> weight) {
  const std::int64_t out = weight.extent(0);
  const std::int64_t in = weight.extent(1);
  Tensor packed(DType::kBFloat16, {kernels::bf16_packed_size(out, in)});
  kernels::bf16_pack_right(
      {weight.data(), kernels::Storage::kFloat32, weight.stride(0)}, out, in,
      reinterpret_cast<kernels::Bf16Bits*>(packed.values<BFloat16>().data()));
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
  const std::int64_t out = g.weight.extent(0);
  const std::int64_t in = g.weight.extent(1);
  const autograd::ConstRows weight{g.weight.data(), out, in,
                                   g.weight.stride(0)};
  std::shared_ptr<float> packed;
  if (!autograd::reads_as_rows(g.d_output.extent(0) * g.d_output.extent(1),
                               in)) {
    packed = autograd::pack_for_backward(weight, pack_memory(), threads);
  }
  for (const Entries& e : entries_of(g.d_output, g.d_input)) {
    autograd::multiply(
        {.x = {g.d_output.at(e.index), e.rows, out, g.d_output.stride(1)},
         .packed = packed.get(),
         .rows = weight,
         .y = {g.d_input.at(e.index), e.rows, in, g.d_input.stride(1)},
         .add = g.add},
        threads);
  }
}

void weight_gradient(const WeightGradient& g, Threads threads) {
  const std::int64_t out = g.d_weight.extent(0);
  const std::int64_t in = g.d_weight.extent(1);
  if (g.d_output.extent(0) * g.d_output.extent(1) == 0) {
    for (std::int64_t r = 0; r < out; ++r) {
      std::fill_n(g.d_weight.at(r), in, 0.0f);
    }
    if (g.d_bias != nullptr) std::fill_n(g.d_bias, out, 0.0f);
  }
  for (const Entries& e : entries_of(g.d_output, g.input)) {
    autograd::add_weight_gradient(
        {.d_y = {g.d_output.at(e.index), e.rows, out, g.d_output.stride(1)},
         .x = {g.input.at(e.index), e.rows, in, g.input.stride(1)},
         .d_weight = g.d_weight.data(),
         .d_weight_stride = g.d_weight.stride(0),
         .d_bias = g.d_bias,
         .add = e.index > 0},
        pack_memory(), threads);
  }
}

}  // namespace regard::nn::detail
