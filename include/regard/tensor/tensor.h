// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "regard/core/aligned_buffer.h"
#include "regard/tensor/dtype.h"
#include "regard/tensor/tensor_view.h"

namespace regard {

using Shape = std::vector<std::int64_t>;

// Owns contiguous elements, last index fastest, of a type and rank known at run
// time. A default Tensor is float32 of shape [0]. Copying copies the elements.
// One that was moved from may only be destroyed or assigned to.
class Tensor {
 public:
  Tensor() : Tensor(DType::kFloat32, Shape{0}) {}
  // Zero-filled. Throws InvalidArgument for a bad shape, IoError without
  // memory.
  Tensor(DType dtype, Shape shape);
  explicit Tensor(Shape shape) : Tensor(DType::kFloat32, std::move(shape)) {}
  template <typename T>
  Tensor(std::span<const T> values, Shape shape);
  Tensor(std::initializer_list<float> values, Shape shape)
      : Tensor(std::span<const float>(values.begin(), values.size()),
               std::move(shape)) {}

  Tensor(const Tensor& other);
  Tensor& operator=(const Tensor& other);
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(Tensor&&) noexcept = default;

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t rank() const { return static_cast<std::int64_t>(shape_.size()); }
  std::int64_t size() const { return size_; }
  std::byte* bytes() { return buffer_.data(); }
  const std::byte* bytes() const { return buffer_.data(); }
  std::size_t byte_count() const {
    return static_cast<std::size_t>(size_) * size_of(dtype_);
  }

  // All elements in order. Throws InvalidArgument if T is not the dtype.
  template <typename T>
  std::span<T> values() {
    check_dtype(dtype_of<T>());
    return {reinterpret_cast<T*>(buffer_.data()),
            static_cast<std::size_t>(size_)};
  }
  template <typename T>
  std::span<const T> values() const {
    check_dtype(dtype_of<T>());
    return {reinterpret_cast<const T*>(buffer_.data()),
            static_cast<std::size_t>(size_)};
  }

  // A view that borrows from this tensor and must not outlive it. Throws
  // InvalidArgument if the dtype or the rank is another.
  template <typename T, int Rank>
  TensorView<T, Rank> view() {
    return {values<T>().data(), extents<Rank>()};
  }
  template <typename T, int Rank>
  TensorView<const T, Rank> view() const {
    return {values<T>().data(), extents<Rank>()};
  }

  // The same elements under another shape of the same count.
  Tensor reshaped(Shape shape) &&;

 private:
  void check_dtype(DType wanted) const;
  void check_rank(int wanted) const;
  template <int Rank>
  std::array<std::int64_t, Rank> extents() const {
    check_rank(Rank);
    std::array<std::int64_t, Rank> extents;
    std::copy(shape_.begin(), shape_.end(), extents.begin());
    return extents;
  }

  DType dtype_;
  Shape shape_;
  std::int64_t size_ = 0;
  AlignedBuffer buffer_;
};

template <typename T>
Tensor::Tensor(std::span<const T> values, Shape shape)
    : Tensor(dtype_of<T>(), std::move(shape)) {
  require(static_cast<std::int64_t>(values.size()) == size_, "Tensor",
          "the shape must hold as many elements as there are values; shape is ",
          ShapeText{shape_}, ", values are ", values.size());
  std::copy(values.begin(), values.end(), this->values<T>().begin());
}

// A model's parameters by name. Ordered, so that files come out the same.
using StateDict = std::map<std::string, Tensor>;

}  // namespace regard
