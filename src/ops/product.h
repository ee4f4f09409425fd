// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "ops/packed_weights.h"
#include "ops/rows.h"
#include "regard/core/threads.h"
#include "regard/ops/activation.h"
#include "regard/ops/memory_pool.h"
#include "regard/ops/weight_storage.h"

// The matrix products of layers, cut into blocks for threads. The bits of an
// element depend on its row and its column alone (kernels/gemm.h), so the cut
// changes none.
namespace regard::ops {

// What a block of a product goes through while it is in the cache.
struct Epilogue {
  Activation activation = Activation::kNone;
  // Of a gated activation: f(x gate^T + gate_bias) * (x weight^T + bias).
  const PackedWeights* gate = nullptr;
  const float* gate_bias = nullptr;
  Rows gate_memory{};    // shaped like y, overwritten
  ConstRows residual{};  // shaped like y, apart from it; added last
};

// y = epilogue(x weight^T + bias)
struct Product {
  ConstRows x;
  const PackedWeights* weight = nullptr;
  const float* bias = nullptr;  // [out], or null for none
  Rows y;                       // apart from x
  bool add = false;             // to what y holds; not for codes
  Epilogue epilogue{};
};

// All products in one go.
void multiply(std::span<const Product> products, Threads threads);
inline void multiply(const Product& product, Threads threads) {
  multiply({&product, 1}, threads);
}

// One product with work on whole rows around it: `before` prepares rows of x,
// `after` takes finished rows of y. Both are given each row once.
void multiply_rows(const Product& product, Threads threads, RowsBody before,
                   RowsBody after);
inline constexpr auto no_rows = [](std::int64_t, std::int64_t) {};

// d_weight += d_y^T x, and d_bias += the column sums of d_y; or =, with `add`
// false. Null: not wanted. Both sum over the rows in one order.
struct WeightGradient {
  ConstRows d_y;            // [rows, out]
  ConstRows x;              // [rows, in]
  Rows d_weight{};          // [out, in]
  float* d_bias = nullptr;  // [out]
  bool add = true;
  // kFloat32, or kBFloat16: both sides of d_weight are rounded.
  WeightStorage products = WeightStorage::kFloat32;
};
void add_weight_gradient(const WeightGradient& gradient, MemoryPool& pool,
                         Threads threads);

}  // namespace regard::ops
