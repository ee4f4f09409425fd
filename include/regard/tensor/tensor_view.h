// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <type_traits>

#include "regard/core/error.h"

namespace regard {

// "[2, 8, 128, 64]"
std::string to_string(std::span<const std::int64_t> shape);

// The same for a message that is hardly ever needed: formatted when written.
struct ShapeText {
  std::span<const std::int64_t> shape;
};
std::ostream& operator<<(std::ostream& out, const ShapeText& text);

// The number of elements; throws InvalidArgument for a negative extent or when
// the count or its size in bytes does not fit in 63 bits.
std::int64_t element_count(std::span<const std::int64_t> shape);

// Borrows elements that somebody else owns: a pointer, the extents and the
// strides, counted in elements. The last stride is always 1, so a row of the
// last dimension is contiguous; every other stride is free (0 broadcasts), so
// [batch, len, heads, dim] and slices of a packed qkv need no copy.
template <typename T, int Rank>
class TensorView {
  static_assert(Rank >= 1);

 public:
  using Extents = std::array<std::int64_t, Rank>;

  TensorView() = default;

  // Contiguous elements, last index fastest. Throws InvalidArgument for a
  // negative extent, or for null data when the view is not empty.
  TensorView(T* data, const Extents& shape) : data_(data), shape_(shape) {
    check();
    std::int64_t stride = 1;
    for (int i = Rank - 1; i >= 0; --i) {
      strides_[i] = stride;
      stride *= shape[i];
    }
  }

  // Any strides, as long as the last one is 1.
  TensorView(T* data, const Extents& shape, const Extents& strides)
      : data_(data), shape_(shape), strides_(strides) {
    require(strides[Rank - 1] == 1 || shape[Rank - 1] <= 1, "TensorView",
            "the last stride must be 1; strides are ", ShapeText{strides});
    strides_[Rank - 1] = 1;
    check();
  }

  // A view of const elements from a view of mutable ones.
  template <typename U>
  requires(std::is_same_v<T, const U>) TensorView(
      const TensorView<U, Rank>& other)  // NOLINT: implicit on purpose
      : data_(other.data()), shape_(other.shape()), strides_(other.strides()) {}

  T* data() const { return data_; }
  const Extents& shape() const { return shape_; }
  const Extents& strides() const { return strides_; }
  std::int64_t extent(int dim) const { return shape_[dim]; }
  std::int64_t stride(int dim) const { return strides_[dim]; }

  // True for a view that was never given data: "not passed".
  bool is_null() const { return data_ == nullptr && size() == 0; }
  std::int64_t size() const {
    std::int64_t n = 1;
    for (const std::int64_t extent : shape_) n *= extent;
    return n;
  }
  bool is_contiguous() const {
    std::int64_t stride = 1;
    for (int i = Rank - 1; i >= 0; --i) {
      if (shape_[i] > 1 && strides_[i] != stride) return false;
      stride *= shape_[i];
    }
    return true;
  }

  // The address of an element, or of the row or block that starts there when
  // fewer than Rank indices are given. Not checked.
  template <typename... Index>
  requires(sizeof...(Index) <= Rank) T* at(Index... index) const {
    const std::array<std::int64_t, sizeof...(Index)> indices{index...};
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      offset += indices[i] * strides_[i];
    }
    return data_ + offset;
  }
  template <typename... Index>
  requires(sizeof...(Index) == Rank) T& operator()(Index... index) const {
    return *at(index...);
  }

 private:
  void check() const {
    const std::int64_t n = element_count(shape_);
    require(data_ != nullptr || n == 0, "TensorView",
            "data must not be null; shape is ", ShapeText{shape_});
  }

  T* data_ = nullptr;
  Extents shape_{};
  Extents strides_{};
};

}  // namespace regard
