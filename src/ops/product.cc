// SPDX-License-Identifier: Apache-2.0
#include "ops/product.h"

#include <algorithm>
#include <cassert>
#include <vector>

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
  // Both sides of so many rows stay in the cache while they are multiplied.
  constexpr std::int64_t kRun = 256;
  static_assert(kRun % kernels::kSumBlock == 0);
  const std::int64_t rows = g.d_y.extent(0);
  const std::int64_t out = g.d_y.extent(1);
  const std::int64_t in = g.x.extent(1);
  if (rows == 0 || out == 0) return;
  threads = threads_for(threads, rows * out * in, kWorthAThread);
  const bool wanted = !g.d_weight.is_null();
  const bool packs = wanted && !PackedWeights::pays_unpacked(rows, in);
  const auto length_of_run = [&](std::int64_t row) {
    return std::min(kRun, rows - row);
  };
  const auto pack_run = [&](std::int64_t row, float* to) {
    kernels::pack_columns(g.x.at(row), g.x.stride(0), length_of_run(row), in,
                          to);
  };
  // Adds what the run of rows from `row` on gives to rows [begin, end) of the
  // weight. `right` is the run of x, packed.
  const auto add_run = [&](std::int64_t row, const float* right,
                           std::int64_t begin, std::int64_t end) {
    const std::int64_t count = length_of_run(row);
    const bool continues = g.add || row > 0;
    if (wanted) {
      auto* const left = reinterpret_cast<float*>(
          thread_scratch(static_cast<std::size_t>(
                             kernels::packed_rows_size(end - begin, count)) *
                         sizeof(float)));
      kernels::pack_rows_transposed(g.d_y.at(row) + begin, g.d_y.stride(0),
                                    end - begin, count, left);
      kernels::gemm({.m = end - begin,
                     .n = in,
                     .k = count,
                     .left = kernels::LeftSide::kPacked,
                     .a = left,
                     .right = packs ? kernels::RightSide::kPacked
                                    : kernels::RightSide::kRows,
                     .b = packs ? right : g.x.at(row),
                     .b_stride = g.x.stride(0),
                     .c = g.d_weight.at(begin),
                     .c_stride = g.d_weight.stride(0),
                     .start = continues ? kernels::Start::kResult
                                        : kernels::Start::kZero});
    }
    if (g.d_bias != nullptr) {
      if (!continues) std::fill(g.d_bias + begin, g.d_bias + end, 0.0f);
      kernels::add_column_sums(g.d_y.at(row) + begin, g.d_y.stride(0), count,
                               end - begin, g.d_bias + begin);
    }
  };
  constexpr std::int64_t kMost = 10 * kernels::kGemmRowGrain;
  if (threads.count == 1) {
    // Run by run, so that what was packed is still in the cache.
    std::shared_ptr<float> packed;
    if (packs) {
      packed = pool.take(kernels::packed_columns_size(length_of_run(0), in));
    }
    for (std::int64_t row = 0; row < rows; row += kRun) {
      if (packs) pack_run(row, packed.get());
      for (std::int64_t begin = 0; begin < out; begin += kMost) {
        add_run(row, packed.get(), begin, std::min(out, begin + kMost));
      }
    }
    return;
  }
  std::shared_ptr<float> packed;
  const auto packed_run = [&](std::int64_t row) {
    return packed.get() + kernels::packed_columns_size(row, in);
  };
  if (packs) {
    packed = pool.take(kernels::packed_columns_size(rows, in));
    over_row_blocks(threads, rows, kRun, [&](std::int64_t begin, std::int64_t) {
      pack_run(begin, packed_run(begin));
    });
  }
  // A task owns some rows of the weight and adds one run after the other.
  const std::int64_t block = std::min(
      kMost, blocks_of(out, 4 * threads.count * kernels::kGemmRowGrain) *
                 kernels::kGemmRowGrain);
  over_row_blocks(
      threads, out, block, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = 0; row < rows; row += kRun) {
          add_run(row, packs ? packed_run(row) : nullptr, begin, end);
        }
      });
}

}  // namespace regard::ops
