// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/storage.h"
#include "regard/tensor/untyped_view.h"

namespace regard::detail {

// A view of rank 4 whose element type is known at run time, for code that finds
// rows and does not read them: at() gives the address of a row. As everywhere,
// strides count elements.
template <typename Byte>
class ElementView : public TensorView<Byte, 4> {
 public:
  using Void = std::conditional_t<std::is_const_v<Byte>, const void, void>;

  ElementView() = default;
  // Throws InvalidArgument where TensorView does.
  explicit ElementView(const BasicUntypedView<Void, 4>& view)
      : TensorView<Byte, 4>(static_cast<Byte*>(view.data), view.shape,
                            view.strides),
        dtype_(view.dtype),
        bytes_(static_cast<std::int64_t>(size_of(view.dtype))) {}

  // Of what is computed in float.
  kernels::Storage storage() const {
    switch (dtype_) {
      case DType::kBFloat16:
        return kernels::Storage::kBFloat16;
      case DType::kFloat16:
        return kernels::Storage::kFloat16;
      default:
        return kernels::Storage::kFloat32;
    }
  }

  Void* at(std::int64_t i, std::int64_t j, std::int64_t k) const {
    return this->data() + bytes_ * (i * this->stride(0) + j * this->stride(1) +
                                    k * this->stride(2));
  }
  // The address `steps` rows after `row`, and what a row takes.
  Void* after(Void* row, std::int64_t steps) const {
    return static_cast<Byte*>(row) + bytes_ * steps * this->stride(2);
  }
  std::size_t row_bytes() const {
    return static_cast<std::size_t>(bytes_ * this->extent(3));
  }

 private:
  DType dtype_ = DType::kFloat32;
  std::int64_t bytes_ = 4;  // of an element
};
using Elements = ElementView<std::byte>;
using ConstElements = ElementView<const std::byte>;

}  // namespace regard::detail
