// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_forward.h"
#include "kernels/bf16/paths.h"
#include "kernels/gemm.h"

namespace regard::kernels {

// Matrix products of bf16 numbers, summed in fp32: both sides are rounded to
// bf16 as they are packed. An element is a sum over steps of 32 along k in
// index order, so on one path (kernels/bf16/cpu.h) its bits depend on its row,
// its column and nothing else.

// The right side [k, n], packed: panels of columns one after the other, each a
// right side of Bf16Product, zero beyond n and k. The layout is the same on
// every path.
inline constexpr std::int64_t kBf16PanelColumns = 32;
std::int64_t bf16_packed_size(std::int64_t n, std::int64_t k);
// From its transpose [n, k], which is how weights [out, in] are kept: row i at
// element i * stride.
struct Bf16Rows {
  const void* data = nullptr;
  Storage storage = Storage::kFloat32;
  std::int64_t stride = 0;
};
void bf16_pack_right(const Bf16Rows& transposed, std::int64_t n, std::int64_t k,
                     Bf16Bits* packed);
// From itself: row i of k at element i * stride, float32.
void bf16_pack_right_rows(const float* rows, std::int64_t stride,
                          std::int64_t n, std::int64_t k, Bf16Bits* packed);

// c = bias + a b, or c + a b, summed in this order. Any size may be zero; with
// k = 0 c is the bias. For threads, n is cut between panels. Cut along k at
// multiples of 32 and added, the parts have the bits of the whole.
struct Bf16Gemm {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Bf16Rows a{};                  // [m, k]
  bool a_is_transposed = false;  // a is [k, m], float32
  const Bf16Bits* b = nullptr;   // packed
  const float* bias = nullptr;   // [n], or null for none
  void* c = nullptr;             // [m, n], row i at element i * c_stride
  Storage c_storage = Storage::kFloat32;
  std::int64_t c_stride = 0;
  Start start = Start::kZero;  // kResult: c is float32, and there is no bias
};

// The rows to give at a time: packed, they stay in the second cache while the
// right side passes over them.
std::int64_t bf16_gemm_rows(std::int64_t k);
// For at most that many rows; 64-byte aligned.
std::size_t bf16_gemm_scratch_bytes(std::int64_t m, std::int64_t k);
void bf16_gemm(const Bf16Gemm& job, std::byte* scratch) noexcept;

}  // namespace regard::kernels
