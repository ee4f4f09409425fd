// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "attention/elements.h"
#include "regard/dist/communicator.h"
#include "regard/ops/memory_pool.h"
#include "regard/tensor/tensor.h"
#include "regard/tensor/untyped_view.h"

namespace regard::dist {

inline ConstUntypedView<4> as_const(const UntypedView<4>& view) {
  return {view.data, view.dtype, view.shape, view.strides};
}

// Heads and positions as they travel: [positions, batch, heads, width] in
// memory, so that what comes from a rank lies in one piece. Copies share the
// memory. It is the calling thread's pool's, so that the next call need not ask
// the system for fresh pages, or it is the caller's.
class Block {
 public:
  Block() = default;
  // Not initialised.
  Block(DType dtype, std::int64_t positions, std::int64_t batch,
        std::int64_t heads, std::int64_t width)
      : dtype_(dtype),
        positions_(positions),
        batch_(batch),
        heads_(heads),
        width_(width),
        memory_(ops::thread_memory_pool().take(
            (positions * static_cast<std::int64_t>(position_bytes()) + 3) /
            4)) {
    data_ = reinterpret_cast<std::byte*>(memory_.get());
  }
  // The memory of a view that lies so: see lies_as_block.
  explicit Block(const UntypedView<4>& view)
      : dtype_(view.dtype),
        positions_(view.shape[2]),
        batch_(view.shape[0]),
        heads_(view.shape[1]),
        width_(view.shape[3]),
        data_(static_cast<std::byte*>(view.data)) {}

  // Room for so many positions of the same type, batch, heads and width.
  Block like(std::int64_t positions) const {
    return Block(dtype_, positions, batch_, heads_, width_);
  }
  // Some of the positions, in place.
  Block part(Part positions) const {
    Block block = *this;
    block.data_ += static_cast<std::size_t>(positions.begin) * position_bytes();
    block.positions_ = positions.size();
    return block;
  }

  std::int64_t positions() const { return positions_; }
  // As attention takes it: [batch, heads, positions, width].
  UntypedView<4> view() {
    return {data_,
            dtype_,
            {batch_, heads_, positions_, width_},
            {heads_ * width_, width_, batch_ * heads_ * width_, 1}};
  }
  ConstUntypedView<4> const_view() { return as_const(view()); }
  std::span<std::byte> bytes() { return bytes({0, positions_}); }
  std::span<std::byte> bytes(Part positions) {
    return {
        data_ + static_cast<std::size_t>(positions.begin) * position_bytes(),
        static_cast<std::size_t>(positions.size()) * position_bytes()};
  }

 private:
  std::size_t position_bytes() const {
    return static_cast<std::size_t>(batch_ * heads_ * width_) * size_of(dtype_);
  }

  DType dtype_ = DType::kFloat32;
  std::int64_t positions_ = 0, batch_ = 0, heads_ = 0, width_ = 0;
  std::shared_ptr<float> memory_;  // null where it is the caller's
  std::byte* data_ = nullptr;
};

// Whether a view's memory is that of a block. Extents of one have no stride.
template <typename View>
bool lies_as_block(const View& view) {
  const auto& shape = view.shape;
  const auto& strides = view.strides;
  return (shape[3] == 1 || strides[3] == 1) &&
         (shape[1] == 1 || strides[1] == shape[3]) &&
         (shape[0] == 1 || strides[0] == shape[1] * shape[3]) &&
         (shape[2] == 1 || strides[2] == shape[0] * shape[1] * shape[3]);
}

inline void copy(const ConstUntypedView<4>& from, const UntypedView<4>& to) {
  const std::size_t size = size_of(from.dtype);
  const auto row = static_cast<std::size_t>(from.shape[3]) * size;
  if (row == 0) return;
  const auto at = [size](const auto& view, std::int64_t b, std::int64_t h,
                         std::int64_t n) {
    return static_cast<std::size_t>(b * view.strides[0] + h * view.strides[1] +
                                    n * view.strides[2]) *
           size;
  };
  for (std::int64_t b = 0; b < from.shape[0]; ++b) {
    for (std::int64_t h = 0; h < from.shape[1]; ++h) {
      for (std::int64_t n = 0; n < from.shape[2]; ++n) {
        std::memcpy(
            static_cast<std::byte*>(to.data) + at(to, b, h, n),
            static_cast<const std::byte*>(from.data) + at(from, b, h, n), row);
      }
    }
  }
}

// What a view shows, as a block that nobody writes to: in place, or a copy.
inline Block packed(const ConstUntypedView<4>& view) {
  if (lies_as_block(view)) {
    return Block(UntypedView<4>{const_cast<void*>(view.data), view.dtype,
                                view.shape, view.strides});
  }
  Block block(view.dtype, view.shape[2], view.shape[0], view.shape[1],
              view.shape[3]);
  copy(view, block.view());
  return block;
}

// [batch, heads, positions], one element wide.
inline UntypedView<4> as_column(const TensorView<float, 3>& rows) {
  return {rows.data(),
          DType::kFloat32,
          {rows.extent(0), rows.extent(1), rows.extent(2), 1},
          {rows.stride(0), rows.stride(1), rows.stride(2), 1}};
}
inline ConstUntypedView<4> as_column(const ConstUntypedView<3>& rows) {
  return {rows.data,
          rows.dtype,
          {rows.shape[0], rows.shape[1], rows.shape[2], 1},
          {rows.strides[0], rows.strides[1], rows.strides[2], 1}};
}

// Such a column, where positions lie together: [batch, heads, positions].
inline Tensor as_rows(Block& column) {
  const UntypedView<4> from = column.view();
  Tensor rows(Shape{from.shape[0], from.shape[1], from.shape[2]});
  copy(as_const(from), as_column(rows.view<float, 3>()));
  return rows;
}

// The address so many bytes before data. Nobody reads there; by numbers, since
// no pointer may point there.
template <typename T>
T* before(T* data, std::int64_t bytes) {
  // Something that is not null, where there is nothing.
  alignas(64) static std::byte nothing[64];
  const auto at = data == nullptr ? reinterpret_cast<std::uintptr_t>(nothing)
                                  : reinterpret_cast<std::uintptr_t>(data);
  return reinterpret_cast<T*>(at - static_cast<std::uintptr_t>(bytes));
}

// The view of a whole sequence of which only the positions from `begin` on are
// in memory. Masks, biases and draws count the whole sequence, and nobody asks
// for the rest.
template <typename View>
auto whole_view(View part, std::int64_t begin, std::int64_t length) {
  const auto bytes = static_cast<std::int64_t>(size_of(part.dtype));
  part.data = before(part.data, begin * part.strides[2] * bytes);
  part.shape[2] = length;
  using Byte = typename View::template Element<std::byte>;
  return detail::ElementView<Byte>(part);
}
inline TensorView<float, 3> whole_rows(Tensor& part, std::int64_t begin,
                                       std::int64_t length) {
  const auto rows = part.view<float, 3>();
  return {before(rows.data(), begin * std::int64_t{sizeof(float)}),
          {rows.extent(0), rows.extent(1), length},
          rows.strides()};
}

}  // namespace regard::dist
