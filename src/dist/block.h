// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "attention/elements.h"
#include "regard/dist/communicator.h"
#include "regard/tensor/tensor.h"
#include "regard/tensor/untyped_view.h"

namespace regard::dist {

inline ConstUntypedView<4> as_const(const UntypedView<4>& view) {
  return {view.data, view.dtype, view.shape, view.strides};
}

// Heads and positions as they travel: [positions, batch, heads, width] in
// memory, so that what comes from a rank lies in one piece.
class Block {
 public:
  Block() = default;
  Block(DType dtype, std::int64_t positions, std::int64_t batch,
        std::int64_t heads, std::int64_t width)
      : batch_(batch),
        heads_(heads),
        width_(width),
        tensor_(dtype, Shape{positions, batch, heads, width}) {}

  // Zeros of the same type, batch, heads and width.
  Block like(std::int64_t positions) const {
    return Block(tensor_.dtype(), positions, batch_, heads_, width_);
  }

  std::int64_t positions() const { return tensor_.shape()[0]; }
  // As attention takes it: [batch, heads, positions, width].
  UntypedView<4> view() {
    return {tensor_.bytes(),
            tensor_.dtype(),
            {batch_, heads_, positions(), width_},
            {heads_ * width_, width_, batch_ * heads_ * width_, 1}};
  }
  ConstUntypedView<4> const_view() { return as_const(view()); }
  std::span<std::byte> bytes() { return bytes({0, positions()}); }
  std::span<std::byte> bytes(Part positions) {
    const auto each = static_cast<std::size_t>(batch_ * heads_ * width_) *
                      size_of(tensor_.dtype());
    return {tensor_.bytes() + static_cast<std::size_t>(positions.begin) * each,
            static_cast<std::size_t>(positions.size()) * each};
  }

 private:
  std::int64_t batch_ = 0, heads_ = 0, width_ = 0;
  Tensor tensor_{Shape{0, 0, 0, 0}};
};

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

inline Block packed(const ConstUntypedView<4>& view) {
  Block block(view.dtype, view.shape[2], view.shape[0], view.shape[1],
              view.shape[3]);
  copy(view, block.view());
  return block;
}

// Some positions of a view.
template <typename View>
View positions_of(View view, Part part) {
  using Byte = std::conditional_t<std::is_same_v<View, UntypedView<4>>,
                                  std::byte, const std::byte>;
  view.data = static_cast<Byte*>(view.data) +
              part.begin * view.strides[2] *
                  static_cast<std::int64_t>(size_of(view.dtype));
  view.shape[2] = part.size();
  return view;
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
