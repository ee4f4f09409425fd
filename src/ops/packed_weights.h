// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/gemm.h"
#include "ops/quantised_weights.h"
#include "ops/rows.h"
#include "regard/core/threads.h"
#include "regard/ops/memory_pool.h"
#include "regard/ops/weight_storage.h"

namespace regard::ops {

// To add a storage type: an enumerator of WeightStorage, and its functions in
// packed_weights.cc.
struct PackOptions {
  WeightStorage storage = WeightStorage::kFloat32;
  MemoryPool* pool = nullptr;  // null: memory of its own
  Threads threads{};
};

// The right side [in, out] of products x [rows, in] -> y [rows, out], in the
// order that the kernel reads it. Copies share the values.
class PackedWeights {
 public:
  PackedWeights() = default;

  // weight [out, in], as linear layers keep it: for x weight^T. As stored, it
  // stays float32.
  static PackedWeights pack(ConstRows weight, const PackOptions& options = {});
  static PackedWeights pack_groups(const GroupedWeights& weights,
                                   const PackOptions& options = {});
  // As pack, for x of so many rows: where they are too few for packing to pay,
  // products in float32 read the weight where it is.
  static PackedWeights pack_for(std::int64_t rows, ConstRows weight,
                                const PackOptions& options = {});
  // weight [in, out]: for x weight. float32 and bfloat16.
  static PackedWeights pack_transposed(ConstRows weight,
                                       const PackOptions& options = {});
  // As pack_for.
  static PackedWeights transposed_for(std::int64_t rows, ConstRows weight,
                                      const PackOptions& options = {});
  static bool pays_unpacked(std::int64_t rows, std::int64_t out);

  bool is_null() const { return data_ == nullptr; }
  std::size_t bytes() const;  // of packed weights
  std::int64_t in() const { return in_; }
  std::int64_t out() const { return out_; }

  // How a product is best cut into blocks.
  struct Grain {
    std::int64_t rows;   // per block
    std::int64_t tile;   // blocks of rows are multiples of this,
    std::int64_t panel;  // blocks of columns of this
  };
  Grain grain() const;

  // Codes are multiplied with codes: rows of x are rounded first, each to so
  // many bytes. 0: these weights take x as it is.
  std::size_t rounded_row_bytes() const;
  // Whether the rounded rows of both are the same.
  bool rounds_as(const PackedWeights& other) const;
  void round(ConstRows x, std::byte* to) const;

  // One block: y = x weight[columns from `column` on] + bias, or added to what
  // y holds. bias is that of the whole result, or null. `rounded` is x after
  // round(), where these weights want that.
  void multiply(ConstRows x, std::int64_t column, const float* bias, Rows y,
                kernels::Start start, const std::byte* rounded = nullptr) const;

 private:
  static PackedWeights unpacked(kernels::RightSide side, ConstRows weight);

  WeightStorage storage_ = WeightStorage::kFloat32;
  kernels::RightSide side_ = kernels::RightSide::kPacked;
  std::int64_t in_ = 0;
  std::int64_t out_ = 0;
  std::int64_t stride_ = 0;          // of a side that is not packed
  kernels::QuantisedLayout layout_;  // of codes
  std::shared_ptr<const void> data_;
};

}  // namespace regard::ops
