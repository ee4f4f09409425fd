// SPDX-License-Identifier: Apache-2.0
#include "ops/product.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "kernels/bf16/gemm.h"
#include "kernels/gemm.h"
#include "kernels/rows.h"
#include "ops/activate.h"
#include "regard/core/aligned_buffer.h"

namespace regard::ops {
namespace {

// Below so many multiply-adds another thread costs more than it brings.
constexpr std::int64_t kWorthAThread = 1 << 20;

Rows block_of(Rows y, std::int64_t row, std::int64_t rows, std::int64_t column,
              std::int64_t width) {
  return columns(y.at(row) + column, rows, width, y.stride(0));
}

// f(row of y, row of b, columns) for each row of a block, or once where the
// rows of both follow each other.
template <typename F>
void for_rows(Rows y, ConstRows b, const F& f) {
  const std::int64_t width = y.extent(1);
  if (y.stride(0) == width && b.stride(0) == width) {
    f(y.data(), b.data(), y.extent(0) * width);
    return;
  }
  for (std::int64_t r = 0; r < y.extent(0); ++r) f(y.at(r), b.at(r), width);
}

// The left side of one product or of several, rounded.
struct RoundedInput {
  const PackedWeights* weight;  // one of those that it is for
  ConstRows x;
  const std::byte* data = nullptr;

  bool serves(const PackedWeights& other, ConstRows read) const {
    return x.data() == read.data() && x.stride(0) == read.stride(0) &&
           x.extent(0) == read.extent(0) && weight->rounds_as(other);
  }
  std::size_t bytes() const {
    return static_cast<std::size_t>(x.extent(0)) * weight->rounded_row_bytes();
  }
};

// What products read is rounded once, whoever reads it and however they are
// cut.
class RoundedInputs {
 public:
  void add(const PackedWeights& weight, ConstRows x) {
    if (weight.rounded_row_bytes() > 0 && find(weight, x) == nullptr) {
      all_.push_back({&weight, x});
    }
  }

  void round(Threads threads) {
    std::size_t bytes = 0;
    std::int64_t elements = 0;
    for (const RoundedInput& input : all_) {
      bytes += input.bytes();
      elements += input.x.size();
    }
    if (bytes == 0) return;
    std::byte* to = thread_scratch(bytes, Scratch::kCall);
    threads = threads_for(threads, elements, kRoundedPerThread);
    for (RoundedInput& input : all_) {
      const std::size_t row_bytes = input.weight->rounded_row_bytes();
      const ConstRows x = input.x;
      over_row_blocks(
          threads, x.extent(0), blocks_of(x.extent(0), threads.count),
          [&](std::int64_t begin, std::int64_t end) {
            input.weight->round(
                columns(x.at(begin), end - begin, x.extent(1), x.stride(0)),
                to + static_cast<std::size_t>(begin) * row_bytes);
          });
      input.data = to;
      to += input.bytes();
    }
  }

  // Row `row` of x as this weight reads it, or null.
  const std::byte* row(const PackedWeights& weight, ConstRows x,
                       std::int64_t row) const {
    const RoundedInput* const input = find(weight, x);
    if (input == nullptr) return nullptr;
    return input->data +
           static_cast<std::size_t>(row) * weight.rounded_row_bytes();
  }

 private:
  const RoundedInput* find(const PackedWeights& weight, ConstRows x) const {
    for (const RoundedInput& input : all_) {
      if (input.serves(weight, x)) return &input;
    }
    return nullptr;
  }

  // Fewer elements are rounded before another thread has woken up.
  static constexpr std::int64_t kRoundedPerThread = 1 << 15;
  std::vector<RoundedInput> all_;
};

// How one product is cut: into blocks of rows, and of columns.
struct Cut {
  const Product* product;
  std::int64_t rows, row_blocks;
  std::int64_t columns = 0, column_blocks = 1;

  explicit Cut(const Product& p) : product(&p) {
    const PackedWeights::Grain grain = p.weight->grain();
    const std::int64_t all = p.y.extent(0);
    // Blocks of equal size, so that no thread is left with a rest.
    const std::int64_t least =
        std::max<std::int64_t>(1, blocks_of(all, grain.rows));
    rows = blocks_of(blocks_of(all, least), grain.tile) * grain.tile;
    columns = p.y.extent(1);
    row_blocks = columns == 0 || all == 0 ? 0 : blocks_of(all, rows);
  }

  void cut_columns(std::int64_t wanted) {
    const std::int64_t panel = product->weight->grain().panel;
    const std::int64_t panels = blocks_of(columns, panel);
    if (panels == 0) return;
    const std::int64_t all = columns;
    columns = blocks_of(panels, std::min(wanted, panels)) * panel;
    column_blocks = blocks_of(all, columns);
  }

  std::int64_t tasks() const { return row_blocks * column_blocks; }
  // Multiply-adds, or for few rows, which wait for the weights, what could be
  // multiplied in the time that memory takes to bring them.
  std::int64_t work() const {
    constexpr std::int64_t kPerByte = 8;
    const Product& p = *product;
    const std::int64_t once =
        std::max(p.y.size() * p.x.extent(1),
                 p.y.extent(0) == 0
                     ? 0
                     : kPerByte * static_cast<std::int64_t>(p.weight->bytes()));
    return p.epilogue.gate == nullptr ? once : 2 * once;
  }

  void run(std::int64_t task, const RoundedInputs& inputs) const {
    const Product& p = *product;
    const Epilogue& e = p.epilogue;
    const std::int64_t row = task / column_blocks * rows;
    const std::int64_t column = task % column_blocks * columns;
    const std::int64_t m = std::min(rows, p.y.extent(0) - row);
    const std::int64_t n = std::min(columns, p.y.extent(1) - column);
    const ConstRows x =
        ops::columns(p.x.at(row), m, p.x.extent(1), p.x.stride(0));
    const Rows y = block_of(p.y, row, m, column, n);
    p.weight->multiply(x, column, p.bias, y,
                       p.add ? kernels::Start::kResult : kernels::Start::kZero,
                       inputs.row(*p.weight, p.x, row));
    if (e.gate != nullptr) {
      const Rows gate = block_of(e.gate_memory, row, m, column, n);
      e.gate->multiply(x, column, e.gate_bias, gate, kernels::Start::kZero,
                       inputs.row(*e.gate, p.x, row));
      for_rows(y, gate, [&](float* up, const float* g, std::int64_t count) {
        activate_gated(e.activation, g, up, count, up);
      });
    } else if (e.activation != Activation::kNone) {
      for_rows(y, y, [&](float* at, const float*, std::int64_t count) {
        activate(e.activation, at, count, at);
      });
    }
    if (e.residual.is_null()) return;
    const ConstRows residual =
        ops::columns(e.residual.at(row) + column, m, n, e.residual.stride(0));
    for_rows(y, residual, [](float* at, const float* r, std::int64_t count) {
      kernels::add_scaled(r, 1.0f, count, at);
    });
  }
};

// How the two sides of d_weight += d_y^T x are packed and multiplied, a run of
// rows at a time. The right side, x, is packed for all rows of d_weight.
struct FloatSides {
  // Both sides of so many rows stay in the cache while they are multiplied.
  static constexpr std::int64_t kRun = 256;
  static constexpr std::int64_t kMostRows = 10 * kernels::kGemmRowGrain;
  static constexpr std::int64_t kRowGrain = kernels::kGemmRowGrain;

  explicit FloatSides(const WeightGradient& gradient)
      : g(gradient),
        packs(!PackedWeights::pays_unpacked(g.x.extent(0), g.x.extent(1))) {}

  const WeightGradient& g;
  bool packs;

  // Floats of so many rows of x, packed.
  std::int64_t packed_size(std::int64_t rows) const {
    return packs ? kernels::packed_columns_size(rows, g.x.extent(1)) : 0;
  }
  void pack(std::int64_t row, std::int64_t rows, float* to) const {
    if (!packs) return;
    kernels::pack_columns(g.x.at(row), g.x.stride(0), rows, g.x.extent(1), to);
  }
  void add(std::int64_t row, std::int64_t rows, const float* right, Rows to,
           std::int64_t column, kernels::Start start) const {
    const std::int64_t m = to.extent(0);
    auto* const left = reinterpret_cast<float*>(thread_scratch(
        static_cast<std::size_t>(kernels::packed_rows_size(m, rows)) *
        sizeof(float)));
    kernels::pack_rows_transposed(g.d_y.at(row) + column, g.d_y.stride(0), m,
                                  rows, left);
    kernels::gemm({.m = m,
                   .n = to.extent(1),
                   .k = rows,
                   .left = kernels::LeftSide::kPacked,
                   .a = left,
                   .right = packs ? kernels::RightSide::kPacked
                                  : kernels::RightSide::kRows,
                   .b = packs ? right : g.x.at(row),
                   .b_stride = g.x.stride(0),
                   .c = to.data(),
                   .c_stride = to.stride(0),
                   .start = start});
  }
};

struct Bf16Sides {
  // A result in the cache is read and written once for so many rows, and six
  // panels of the left side still stay there.
  static constexpr std::int64_t kRun = 2048;
  static constexpr std::int64_t kMostRows = 6 * kernels::kPanelRows;
  static constexpr std::int64_t kRowGrain = kernels::kPanelRows;

  explicit Bf16Sides(const WeightGradient& gradient) : g(gradient) {}

  const WeightGradient& g;

  std::int64_t packed_size(std::int64_t rows) const {
    return kernels::bf16_packed_size(g.x.extent(1), rows) / 2;
  }
  void pack(std::int64_t row, std::int64_t rows, float* to) const {
    kernels::bf16_pack_right_rows(g.x.at(row), g.x.stride(0), g.x.extent(1),
                                  rows,
                                  reinterpret_cast<kernels::Bf16Bits*>(to));
  }
  void add(std::int64_t row, std::int64_t rows, const float* right, Rows to,
           std::int64_t column, kernels::Start start) const {
    const std::int64_t m = to.extent(0);
    kernels::bf16_gemm(
        {.m = m,
         .n = to.extent(1),
         .k = rows,
         .a = {g.d_y.at(row) + column, kernels::Storage::kFloat32,
               g.d_y.stride(0)},
         .a_is_transposed = true,
         .b = reinterpret_cast<const kernels::Bf16Bits*>(right),
         .c = to.data(),
         .c_stride = to.stride(0),
         .start = start},
        thread_scratch(kernels::bf16_gemm_scratch_bytes(m, rows)));
  }
};

template <typename Sides>
void add_weight_gradient_of(const WeightGradient& g, MemoryPool& pool,
                            Threads threads) {
  constexpr std::int64_t kRun = Sides::kRun;
  static_assert(kRun % kernels::kSumBlock == 0);
  const Sides sides(g);
  const std::int64_t rows = g.d_y.extent(0);
  const std::int64_t out = g.d_y.extent(1);
  const bool wanted = !g.d_weight.is_null();
  const auto length_of_run = [&](std::int64_t row) {
    return std::min(kRun, rows - row);
  };
  // Adds what the run of rows from `row` on gives to rows [begin, end) of the
  // weight. `right` is the run of x, packed.
  const auto add_run = [&](std::int64_t row, const float* right,
                           std::int64_t begin, std::int64_t end) {
    const std::int64_t count = length_of_run(row);
    const bool continues = g.add || row > 0;
    if (wanted) {
      sides.add(row, count, right,
                columns(g.d_weight.at(begin), end - begin, g.d_weight.extent(1),
                        g.d_weight.stride(0)),
                begin,
                continues ? kernels::Start::kResult : kernels::Start::kZero);
    }
    if (g.d_bias != nullptr) {
      if (!continues) std::fill(g.d_bias + begin, g.d_bias + end, 0.0f);
      kernels::add_column_sums(g.d_y.at(row) + begin, g.d_y.stride(0), count,
                               end - begin, g.d_bias + begin);
    }
  };
  const auto take = [&](std::int64_t count) {
    const std::int64_t floats = wanted ? sides.packed_size(count) : 0;
    return floats > 0 ? pool.take(floats) : nullptr;
  };
  if (threads.count == 1) {
    // Run by run, so that what was packed is still in the cache.
    const std::shared_ptr<float> packed = take(length_of_run(0));
    for (std::int64_t row = 0; row < rows; row += kRun) {
      if (wanted) sides.pack(row, length_of_run(row), packed.get());
      for (std::int64_t begin = 0; begin < out; begin += Sides::kMostRows) {
        add_run(row, packed.get(), begin,
                std::min(out, begin + Sides::kMostRows));
      }
    }
    return;
  }
  const std::shared_ptr<float> packed = take(rows);
  const auto packed_run = [&](std::int64_t row) {
    return packed.get() + sides.packed_size(row);
  };
  if (wanted) {
    over_row_blocks(threads, rows, kRun, [&](std::int64_t begin, std::int64_t) {
      sides.pack(begin, length_of_run(begin), packed_run(begin));
    });
  }
  // A task owns some rows of the weight and adds one run after the other.
  const std::int64_t block = std::min(
      Sides::kMostRows,
      blocks_of(out, 4 * threads.count * Sides::kRowGrain) * Sides::kRowGrain);
  over_row_blocks(
      threads, out, block, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = 0; row < rows; row += kRun) {
          add_run(row, wanted ? packed_run(row) : nullptr, begin, end);
        }
      });
}

}  // namespace

void multiply(std::span<const Product> products, Threads threads) {
  std::vector<Cut> cuts;
  cuts.reserve(products.size());
  std::int64_t work = 0, row_blocks = 0, tasks = 0;
  RoundedInputs inputs;
  for (const Product& p : products) {
    inputs.add(*p.weight, p.x);
    if (p.epilogue.gate != nullptr) inputs.add(*p.epilogue.gate, p.x);
    cuts.emplace_back(p);
    work += cuts.back().work();
    row_blocks += cuts.back().row_blocks;
  }
  threads = threads_for(threads, work, kWorthAThread);
  for (Cut& cut : cuts) {
    // Few blocks of rows leave threads without work: cut the columns, too.
    if (threads.count > 1 && row_blocks > 0) {
      cut.cut_columns(blocks_of(3 * threads.count, row_blocks));
    }
    tasks += cut.tasks();
  }
  inputs.round(threads);
  parallel_for(threads, tasks, [&](std::int64_t task) {
    std::size_t i = 0;
    for (; task >= cuts[i].tasks(); ++i) task -= cuts[i].tasks();
    cuts[i].run(task, inputs);
  });
}

void multiply_rows(const Product& product, Threads threads, RowsBody before,
                   RowsBody after) {
  Cut cut(product);
  if (cut.row_blocks == 0) return;
  const std::int64_t all = product.y.extent(0);
  threads = threads_for(threads, cut.work(), kWorthAThread);
  const bool in_blocks =
      threads.count == 1 || cut.row_blocks >= 2 * threads.count;
  // What is rounded is rounded for all rows.
  if (in_blocks && product.weight->rounded_row_bytes() == 0) {
    parallel_for(threads, cut.row_blocks, [&](std::int64_t i) {
      const std::int64_t end = std::min(all, (i + 1) * cut.rows);
      before(i * cut.rows, end);
      cut.run(i, {});
      after(i * cut.rows, end);
    });
    return;
  }
  before(0, all);
  multiply(product, threads);
  after(0, all);
}

void add_weight_gradient(const WeightGradient& g, MemoryPool& pool,
                         Threads threads) {
  const std::int64_t rows = g.d_y.extent(0);
  const std::int64_t out = g.d_y.extent(1);
  if (rows == 0 || out == 0) return;
  threads = threads_for(threads, rows * out * g.x.extent(1), kWorthAThread);
  assert(g.products == WeightStorage::kFloat32 ||
         g.products == WeightStorage::kBFloat16);
  g.products == WeightStorage::kBFloat16
      ? add_weight_gradient_of<Bf16Sides>(g, pool, threads)
      : add_weight_gradient_of<FloatSides>(g, pool, threads);
}

}  // namespace regard::ops
