// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "regard/core/threads.h"
#include "regard/tensor/tensor_view.h"

// Matrices of activations, a row per token.
namespace regard::ops {

using ConstRows = TensorView<const float, 2>;  // [rows, width]
using Rows = TensorView<float, 2>;

// Columns of a matrix whose rows are `stride` floats apart.
inline ConstRows columns(const float* data, std::int64_t rows,
                         std::int64_t width, std::int64_t stride) {
  return {data, {rows, width}, {stride, 1}};
}
inline Rows columns(float* data, std::int64_t rows, std::int64_t width,
                    std::int64_t stride) {
  return {data, {rows, width}, {stride, 1}};
}

// The place of each row in its sentence.
inline std::vector<std::int64_t> places_of(
    std::span<const std::int64_t> offsets) {
  std::vector<std::int64_t> places;
  for (std::size_t s = 1; s < offsets.size(); ++s) {
    for (std::int64_t i = offsets[s - 1]; i < offsets[s]; ++i) {
      places.push_back(i - offsets[s - 1]);
    }
  }
  return places;
}

// A stride for rows of so many floats: whole cache lines, an odd number of
// them. At a power of two, rows would share a few sets of the cache.
constexpr std::int64_t padded_stride(std::int64_t width) {
  constexpr std::int64_t kLine = 16;
  return ((width + kLine - 1) / kLine | 1) * kLine;
}

constexpr std::int64_t blocks_of(std::int64_t size, std::int64_t block) {
  return (size + block - 1) / block;
}

// Rows that pass through an elementwise operation or a norm at a time.
inline constexpr std::int64_t kRowBlock = 64;

using RowsBody = FunctionRef<void(std::int64_t begin, std::int64_t end)>;

// body(begin, end) over all rows, in blocks of so many.
inline void over_row_blocks(Threads threads, std::int64_t rows,
                            std::int64_t block, RowsBody body) {
  parallel_for(threads, blocks_of(rows, block), [&](std::int64_t i) {
    body(i * block, std::min(rows, (i + 1) * block));
  });
}

// As many threads as so much work is worth.
inline Threads threads_for(Threads threads, std::int64_t work,
                           std::int64_t worth_a_thread) {
  return {
      thread_count(threads, std::max<std::int64_t>(1, work / worth_a_thread)),
      threads.pool};
}

// The rows of [batch, len, width] as one matrix, if all of them stand an equal
// distance apart, or else as one for each batch entry.
template <typename T>
bool is_one_matrix(const TensorView<T, 3>& view) {
  return view.extent(0) == 1 ||
         view.stride(0) == view.extent(1) * view.stride(1);
}
template <typename A, typename B>
std::int64_t matrices(const TensorView<A, 3>& a, const TensorView<B, 3>& b) {
  return is_one_matrix(a) && is_one_matrix(b) ? 1 : a.extent(0);
}
template <typename T>
TensorView<T, 2> matrix(const TensorView<T, 3>& view, std::int64_t number,
                        std::int64_t matrices) {
  const std::int64_t rows =
      matrices == 1 ? view.extent(0) * view.extent(1) : view.extent(1);
  return {view.at(number), {rows, view.extent(2)}, {view.stride(1), 1}};
}

}  // namespace regard::ops
