// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "regard/tensor/dtype.h"
#include "regard/tensor/tensor_view.h"

namespace regard {

// A TensorView whose element type is known at run time: what one function for
// every type takes. Void is void, or const void for elements that are only
// read. Borrows; a default one is "not passed".
template <typename Void, int Rank>
struct BasicUntypedView {
  using Extents = std::array<std::int64_t, Rank>;
  template <typename T>
  using Element = std::conditional_t<std::is_const_v<Void>, const T, T>;

  Void* data = nullptr;
  DType dtype = DType::kFloat32;
  Extents shape{};
  Extents strides{};  // in elements; the last is 1

  BasicUntypedView() = default;
  BasicUntypedView(Void* elements, DType type, const Extents& extents,
                   const Extents& steps)
      : data(elements), dtype(type), shape(extents), strides(steps) {}
  template <typename T>
  explicit BasicUntypedView(const TensorView<T, Rank>& view)
      : data(view.data()),
        dtype(dtype_of<std::remove_const_t<T>>()),
        shape(view.shape()),
        strides(view.strides()) {}
  template <typename T>
  requires(Rank == 1) explicit BasicUntypedView(std::span<T> values)
      : BasicUntypedView(TensorView<T, 1>(
            values.data(), {static_cast<std::int64_t>(values.size())})) {}

  bool is_null() const { return data == nullptr && shape == Extents{}; }

  // The view of this type, which dtype must name. Throws InvalidArgument where
  // TensorView would: negative extents, a last stride that is not 1, null data.
  template <typename T>
  TensorView<Element<T>, Rank> as() const {
    require(is_null() || dtype == dtype_of<T>(), "UntypedView::as",
            "the elements must be ", to_string(dtype_of<T>()), "; they are ",
            to_string(dtype));
    return {static_cast<Element<T>*>(data), shape, strides};
  }
};

template <int Rank>
using UntypedView = BasicUntypedView<void, Rank>;
template <int Rank>
using ConstUntypedView = BasicUntypedView<const void, Rank>;

}  // namespace regard
