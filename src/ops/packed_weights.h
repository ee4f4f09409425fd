// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/gemm.h"
#include "ops/rows.h"
#include "regard/core/threads.h"
#include "regard/ops/memory_pool.h"

namespace regard::ops {

// The type that a packed weight has in memory. To add one: an enumerator, and
// its functions in packed_weights.cc.
enum class WeightStorage {
  kFloat32,
  kBFloat16,  // products round their input to bf16, too, and sum in float
};

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

  // weight [out, in], as linear layers keep it: for x weight^T.
  static PackedWeights pack(ConstRows weight, const PackOptions& options = {});
  // weight [in, out]: for x weight. float32 alone.
  static PackedWeights pack_transposed(ConstRows weight,
                                       const PackOptions& options = {});
  // The same for x of so many rows: where they are too few for packing to pay,
  // products read the weight where it is.
  static PackedWeights transposed_for(std::int64_t rows, ConstRows weight,
                                      const PackOptions& options = {});
  static bool pays_unpacked(std::int64_t rows, std::int64_t out);

  bool is_null() const { return data_ == nullptr; }
  std::int64_t in() const { return in_; }
  std::int64_t out() const { return out_; }

  // How a product is best cut into blocks.
  struct Grain {
    std::int64_t rows;   // per block
    std::int64_t tile;   // blocks of rows are multiples of this,
    std::int64_t panel;  // blocks of columns of this
  };
  Grain grain() const;

  // One block: y = x weight[columns from `column` on] + bias, or added to what
  // y holds. bias is that of the whole result, or null.
  void multiply(ConstRows x, std::int64_t column, const float* bias, Rows y,
                kernels::Start start) const;

 private:
  WeightStorage storage_ = WeightStorage::kFloat32;
  kernels::RightSide side_ = kernels::RightSide::kPacked;
  std::int64_t in_ = 0;
  std::int64_t out_ = 0;
  std::int64_t stride_ = 0;  // of RightSide::kRows
  std::shared_ptr<const void> data_;
};

}  // namespace regard::ops
