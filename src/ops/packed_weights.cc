// SPDX-License-Identifier: Apache-2.0
#include "ops/packed_weights.h"

#include <algorithm>
#include <cassert>

#include "kernels/bf16_gemm.h"
#include "regard/core/aligned_buffer.h"

namespace regard::ops {
namespace {

using Grain = PackedWeights::Grain;

// One block of a product, in the kernel's terms.
struct Block {
  ConstRows x;
  const std::byte* weight;  // of the whole right side
  std::int64_t column;
  kernels::RightSide side;
  std::int64_t stride;
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
  void (*multiply)(const Block& block);
};

constexpr StorageKernels kFloat32{
    .grain =
        [](std::int64_t) {
          return Grain{kernels::kGemmBlockRows, kernels::kGemmTileRows,
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
    .multiply =
        [](const Block& b) {
          const auto* const weight = reinterpret_cast<const float*>(b.weight);
          const std::int64_t k = b.x.extent(1);
          const bool packed = b.side == kernels::RightSide::kPacked;
          kernels::gemm({.m = b.x.extent(0),
                         .n = b.y.extent(1),
                         .k = k,
                         .a = b.x.data(),
                         .a_stride = b.x.stride(0),
                         .right = b.side,
                         .b = weight + (packed ? b.column * k : b.column),
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
    .multiply =
        [](const Block& b) {
          assert(b.start == kernels::Start::kZero);
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
               .c_stride = b.y.stride(0)},
              thread_scratch(kernels::bf16_gemm_scratch_bytes(m, k)));
        }};

const StorageKernels& kernels_of(WeightStorage storage) {
  switch (storage) {
    case WeightStorage::kBFloat16:
      return kBFloat16;
    default:
      return kFloat32;
  }
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
  packed.storage_ = options.storage;
  packed.out_ = weight.extent(0);
  packed.in_ = weight.extent(1);
  const StorageKernels& kernels = kernels_of(options.storage);
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

PackedWeights PackedWeights::pack_transposed(ConstRows weight,
                                             const PackOptions& options) {
  assert(options.storage == WeightStorage::kFloat32);
  PackedWeights packed;
  packed.in_ = weight.extent(0);
  packed.out_ = weight.extent(1);
  const std::shared_ptr<void> data =
      memory_for(kFloat32.bytes(packed.out_, packed.in_), options.pool);
  over_panels(options.threads, packed.in_, packed.out_, kernels::kPanelColumns,
              [&](std::int64_t begin, std::int64_t count) {
                kernels::pack_columns(
                    weight.data() + begin, weight.stride(0), packed.in_, count,
                    static_cast<float*>(data.get()) + begin * packed.in_);
              });
  packed.data_ = data;
  return packed;
}

bool PackedWeights::pays_unpacked(std::int64_t rows, std::int64_t out) {
  return rows <= 2 * kernels::kGemmTileRows && out % kernels::kColumnStep == 0;
}

PackedWeights PackedWeights::transposed_for(std::int64_t rows, ConstRows weight,
                                            const PackOptions& options) {
  if (!pays_unpacked(rows, weight.extent(1))) {
    return pack_transposed(weight, options);
  }
  PackedWeights unpacked;
  unpacked.side_ = kernels::RightSide::kRows;
  unpacked.in_ = weight.extent(0);
  unpacked.out_ = weight.extent(1);
  unpacked.stride_ = weight.stride(0);
  unpacked.data_ = {std::shared_ptr<void>(), weight.data()};
  return unpacked;
}

Grain PackedWeights::grain() const { return kernels_of(storage_).grain(in_); }

void PackedWeights::multiply(ConstRows x, std::int64_t column,
                             const float* bias, Rows y,
                             kernels::Start start) const {
  kernels_of(storage_).multiply(
      {x, static_cast<const std::byte*>(data_.get()), column, side_, stride_,
       bias == nullptr ? nullptr : bias + column, y, start});
}

}  // namespace regard::ops
