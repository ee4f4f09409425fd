// SPDX-License-Identifier: Apache-2.0
#include "ops/packed_weights.h"

#include <algorithm>
#include <cassert>

#include "kernels/bf16/gemm.h"
#include "ops/quantised_weights.h"
#include "regard/core/aligned_buffer.h"

namespace regard::ops {
namespace {

using Grain = PackedWeights::Grain;

// One block of a product, in the kernel's terms.
struct Block {
  ConstRows x;
  const std::byte* rounded;  // x as codes, for codes
  const std::byte* weight;   // of the whole right side
  std::int64_t column;
  kernels::RightSide side;
  std::int64_t stride;
  const kernels::QuantisedLayout* layout;
  const float* bias;  // of the block's first column
  Rows y;
  kernels::Start start;
};

// What a storage type consists of.
struct StorageKernels {
  Grain (*grain)(std::int64_t in);
  std::size_t (*bytes)(std::int64_t out, std::int64_t in);
  // Rows [begin, begin + count) of weight [out, in]; begin is a multiple of the
  // panel.
  void (*pack)(ConstRows weight, std::int64_t begin, std::int64_t count,
               std::byte* to);
  // Columns [begin, begin + count) of weight [in, out], or null for none.
  void (*pack_transposed)(ConstRows weight, std::int64_t begin,
                          std::int64_t count, std::byte* to);
  void (*multiply)(const Block& block);
};

constexpr StorageKernels kFloat32{
    .grain =
        [](std::int64_t) {
          return Grain{kernels::kGemmBlockRows, kernels::kGemmRowGrain,
                       kernels::kPanelColumns};
        },
    .bytes =
        [](std::int64_t out, std::int64_t in) {
          return static_cast<std::size_t>(
                     kernels::packed_columns_size(in, out)) *
                 sizeof(float);
        },
    .pack =
        [](ConstRows weight, std::int64_t begin, std::int64_t count,
           std::byte* to) {
          const std::int64_t in = weight.extent(1);
          kernels::pack_columns_transposed(
              weight.at(begin), weight.stride(0), in, count,
              reinterpret_cast<float*>(to) + begin * in);
        },
    .pack_transposed =
        [](ConstRows weight, std::int64_t begin, std::int64_t count,
           std::byte* to) {
          const std::int64_t in = weight.extent(0);
          kernels::pack_columns(weight.data() + begin, weight.stride(0), in,
                                count,
                                reinterpret_cast<float*>(to) + begin * in);
        },
    .multiply =
        [](const Block& b) {
          const auto* const weight = reinterpret_cast<const float*>(b.weight);
          const std::int64_t k = b.x.extent(1);
          const std::int64_t step = b.side == kernels::RightSide::kPacked ? k
                                    : b.side == kernels::RightSide::kRows
                                        ? 1
                                        : b.stride;
          kernels::gemm({.m = b.x.extent(0),
                         .n = b.y.extent(1),
                         .k = k,
                         .a = b.x.data(),
                         .a_stride = b.x.stride(0),
                         .right = b.side,
                         .b = weight + b.column * step,
                         .b_stride = b.stride,
                         .bias = b.bias,
                         .c = b.y.data(),
                         .c_stride = b.y.stride(0),
                         .start = b.start});
        }};

constexpr StorageKernels kBFloat16{
    .grain =
        [](std::int64_t in) {
          return Grain{kernels::bf16_gemm_rows(in), kernels::kPanelRows,
                       kernels::kBf16PanelColumns};
        },
    .bytes =
        [](std::int64_t out, std::int64_t in) {
          return static_cast<std::size_t>(kernels::bf16_packed_size(out, in)) *
                 sizeof(kernels::Bf16Bits);
        },
    .pack =
        [](ConstRows weight, std::int64_t begin, std::int64_t count,
           std::byte* to) {
          const std::int64_t in = weight.extent(1);
          kernels::bf16_pack_right(
              {weight.at(begin), kernels::Storage::kFloat32, weight.stride(0)},
              count, in,
              reinterpret_cast<kernels::Bf16Bits*>(to) +
                  kernels::bf16_packed_size(begin, in));
        },
    .pack_transposed =
        [](ConstRows weight, std::int64_t begin, std::int64_t count,
           std::byte* to) {
          const std::int64_t in = weight.extent(0);
          kernels::bf16_pack_right_rows(
              weight.data() + begin, weight.stride(0), count, in,
              reinterpret_cast<kernels::Bf16Bits*>(to) +
                  kernels::bf16_packed_size(begin, in));
        },
    .multiply =
        [](const Block& b) {
          const std::int64_t m = b.x.extent(0);
          const std::int64_t k = b.x.extent(1);
          kernels::bf16_gemm(
              {.m = m,
               .n = b.y.extent(1),
               .k = k,
               .a = {b.x.data(), kernels::Storage::kFloat32, b.x.stride(0)},
               .b = reinterpret_cast<const kernels::Bf16Bits*>(b.weight) +
                    kernels::bf16_packed_size(b.column, k),
               .bias = b.bias,
               .c = b.y.data(),
               .c_stride = b.y.stride(0),
               .start = b.start},
              thread_scratch(kernels::bf16_gemm_scratch_bytes(m, k)));
        }};

void multiply_codes(const Block& b) {
  assert(b.start == kernels::Start::kZero);
  kernels::quantised_gemm(
      {.m = b.x.extent(0),
       .n = b.y.extent(1),
       .layout = b.layout,
       .a = b.rounded,
       .b = b.weight +
            static_cast<std::size_t>(b.column / kernels::kQuantisedColumns) *
                b.layout->panel_bytes(),
       .bias = b.bias,
       .c = b.y.data(),
       .c_stride = b.y.stride(0)});
}

Grain grain_of_codes(std::int64_t) {
  // 64 rounded rows stay in the L2 cache.
  return {64, kernels::kQuantisedRows, kernels::kQuantisedColumns};
}

constexpr StorageKernels kInt8{
    .grain = grain_of_codes,
    .bytes = [](std::int64_t out,
                std::int64_t in) { return codes_bytes(int8_layout(in), out); },
    .pack =
        [](ConstRows weight, std::int64_t begin, std::int64_t count,
           std::byte* to) {
          const auto layout = int8_layout(weight.extent(1));
          pack_codes(
              layout, begin, count,
              [&](std::int64_t row, const GroupedWeights::Row& codes) {
                round_to_int8(weight.at(row), layout.k, codes);
              },
              to);
        },
    .pack_transposed = nullptr,
    .multiply = multiply_codes};

constexpr StorageKernels kInt4{
    .grain = grain_of_codes,
    .bytes = [](std::int64_t out,
                std::int64_t in) { return codes_bytes(int4_layout(in), out); },
    .pack =
        [](ConstRows weight, std::int64_t begin, std::int64_t count,
           std::byte* to) {
          const auto layout = int4_layout(weight.extent(1));
          pack_codes(
              layout, begin, count,
              [&](std::int64_t row, const GroupedWeights::Row& codes) {
                round_to_int4(weight.at(row), layout.k, codes);
              },
              to);
        },
    .pack_transposed = nullptr,
    .multiply = multiply_codes};

// Packed by pack_groups.
constexpr StorageKernels kGrouped{.grain = grain_of_codes,
                                  .bytes = nullptr,
                                  .pack = nullptr,
                                  .pack_transposed = nullptr,
                                  .multiply = multiply_codes};

const StorageKernels& kernels_of(WeightStorage storage) {
  switch (storage) {
    case WeightStorage::kBFloat16:
      return kBFloat16;
    case WeightStorage::kInt8:
      return kInt8;
    case WeightStorage::kInt4:
      return kInt4;
    case WeightStorage::kAsStored:
      return kGrouped;
    case WeightStorage::kFloat32:
      break;
  }
  return kFloat32;
}

std::shared_ptr<void> memory_for(std::size_t bytes, MemoryPool* pool) {
  if (pool != nullptr) {
    return pool->take(static_cast<std::int64_t>(bytes / sizeof(float)) + 1);
  }
  auto buffer =
      std::make_shared<AlignedBuffer>(std::max<std::size_t>(bytes, 1));
  return {buffer, buffer->data()};
}

// body(first column, columns) for groups of panels.
void over_panels(Threads threads, std::int64_t in, std::int64_t out,
                 std::int64_t panel,
                 FunctionRef<void(std::int64_t, std::int64_t)> body) {
  // Below so many numbers moved another thread costs more than it brings.
  constexpr std::int64_t kWorthAThread = 1 << 16;
  const std::int64_t group = 4 * panel;
  parallel_for(threads_for(threads, in * out, kWorthAThread),
               blocks_of(out, group), [&](std::int64_t i) {
                 body(i * group, std::min(group, out - i * group));
               });
}

}  // namespace

PackedWeights PackedWeights::pack(ConstRows weight,
                                  const PackOptions& options) {
  PackedWeights packed;
  packed.storage_ = options.storage == WeightStorage::kAsStored
                        ? WeightStorage::kFloat32
                        : options.storage;
  packed.out_ = weight.extent(0);
  packed.in_ = weight.extent(1);
  if (options.storage == WeightStorage::kInt8) {
    packed.layout_ = int8_layout(packed.in_);
  } else if (options.storage == WeightStorage::kInt4) {
    packed.layout_ = int4_layout(packed.in_);
  }
  const StorageKernels& kernels = kernels_of(packed.storage_);
  const std::shared_ptr<void> data =
      memory_for(kernels.bytes(packed.out_, packed.in_), options.pool);
  over_panels(options.threads, packed.in_, packed.out_, packed.grain().panel,
              [&](std::int64_t begin, std::int64_t count) {
                kernels.pack(weight, begin, count,
                             static_cast<std::byte*>(data.get()));
              });
  packed.data_ = data;
  return packed;
}

PackedWeights PackedWeights::pack_groups(const GroupedWeights& weights,
                                         const PackOptions& options) {
  PackedWeights packed;
  packed.storage_ = WeightStorage::kAsStored;
  packed.out_ = weights.out;
  packed.in_ = weights.in;
  packed.layout_ = {.k = weights.in,
                    .group = weights.group,
                    .bits = weights.bits,
                    .scales = weights.scales,
                    .has_minima = weights.has_minima};
  const std::shared_ptr<void> data = memory_for(packed.bytes(), options.pool);
  over_panels(options.threads, packed.in_, packed.out_, packed.grain().panel,
              [&](std::int64_t begin, std::int64_t count) {
                pack_codes(packed.layout_, begin, count, weights.read,
                           static_cast<std::byte*>(data.get()));
              });
  packed.data_ = data;
  return packed;
}

std::size_t PackedWeights::bytes() const {
  if (storage_ == WeightStorage::kAsStored) return codes_bytes(layout_, out_);
  return kernels_of(storage_).bytes(out_, in_);
}

PackedWeights PackedWeights::pack_transposed(ConstRows weight,
                                             const PackOptions& options) {
  PackedWeights packed;
  packed.storage_ = options.storage;
  packed.in_ = weight.extent(0);
  packed.out_ = weight.extent(1);
  const StorageKernels& kernels = kernels_of(packed.storage_);
  assert(kernels.pack_transposed != nullptr);
  const std::shared_ptr<void> data =
      memory_for(kernels.bytes(packed.out_, packed.in_), options.pool);
  over_panels(options.threads, packed.in_, packed.out_, packed.grain().panel,
              [&](std::int64_t begin, std::int64_t count) {
                kernels.pack_transposed(weight, begin, count,
                                        static_cast<std::byte*>(data.get()));
              });
  packed.data_ = data;
  return packed;
}

bool PackedWeights::pays_unpacked(std::int64_t rows, std::int64_t out) {
  return rows <= kernels::kFewRows && out % kernels::kColumnStep == 0;
}

PackedWeights PackedWeights::transposed_for(std::int64_t rows, ConstRows weight,
                                            const PackOptions& options) {
  if (options.storage != WeightStorage::kFloat32 ||
      !pays_unpacked(rows, weight.extent(1))) {
    return pack_transposed(weight, options);
  }
  return unpacked(kernels::RightSide::kRows, weight);
}

PackedWeights PackedWeights::pack_for(std::int64_t rows, ConstRows weight,
                                      const PackOptions& options) {
  if (options.storage != WeightStorage::kFloat32 || rows > kernels::kFewRows) {
    return pack(weight, options);
  }
  return unpacked(kernels::RightSide::kTransposed, weight);
}

PackedWeights PackedWeights::unpacked(kernels::RightSide side,
                                      ConstRows weight) {
  const bool is_transposed = side == kernels::RightSide::kTransposed;
  PackedWeights unpacked;
  unpacked.side_ = side;
  unpacked.in_ = weight.extent(is_transposed ? 1 : 0);
  unpacked.out_ = weight.extent(is_transposed ? 0 : 1);
  unpacked.stride_ = weight.stride(0);
  unpacked.data_ = {std::shared_ptr<void>(), weight.data()};
  return unpacked;
}

Grain PackedWeights::grain() const { return kernels_of(storage_).grain(in_); }

std::size_t PackedWeights::rounded_row_bytes() const {
  return layout_.k == 0 ? 0 : kernels::rounded_row_bytes(layout_);
}

bool PackedWeights::rounds_as(const PackedWeights& other) const {
  return layout_.k == other.layout_.k && layout_.group == other.layout_.group &&
         layout_.has_minima == other.layout_.has_minima &&
         layout_.bits == other.layout_.bits;
}

void PackedWeights::round(ConstRows x, std::byte* to) const {
  kernels::quantised_round(layout_, x.data(), x.stride(0), x.extent(0), to);
}

void PackedWeights::multiply(ConstRows x, std::int64_t column,
                             const float* bias, Rows y, kernels::Start start,
                             const std::byte* rounded) const {
  kernels_of(storage_).multiply(
      {x, rounded, static_cast<const std::byte*>(data_.get()), column, side_,
       stride_, &layout_, bias == nullptr ? nullptr : bias + column, y, start});
}

}  // namespace regard::ops
