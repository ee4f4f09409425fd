// SPDX-License-Identifier: Apache-2.0
// From a call whose types are known at run time to one of known types.
#pragma once

#include "regard/attention/attention.h"
#include "regard/tensor/untyped_view.h"

namespace regard::detail {

// The refusals are in untyped.cc, once for all types: they are much of what
// this weighs.
[[noreturn]] void refuse_element_type(DType q, const char* where);
[[noreturn]] void refuse_precision(DType q, const char* where,
                                   const char* name);
void check_element_type(DType came, DType wanted, DType q, const char* where,
                        const char* name);

// body.operator()<T>() with the type that q has.
template <typename Body>
void with_element_type(DType q, const char* where, const Body& body) {
  switch (q) {
    case DType::kFloat32:
      return body.template operator()<float>();
    case DType::kBFloat16:
      return body.template operator()<BFloat16>();
    case DType::kFloat16:
      return body.template operator()<Float16>();
    case DType::kFloat64:
      return body.template operator()<double>();
    default:
      refuse_element_type(q, where);
  }
}

// Views of a call whose q has elements of type T.
template <typename T>
struct TypedViews {
  const char* where;

  // What must be of the type of q, and what must be of the type that is
  // computed in.
  template <typename Void, int Rank>
  auto like_q(const BasicUntypedView<Void, Rank>& view,
              const char* name) const {
    return as<T>(view, name);
  }
  template <typename Void, int Rank>
  auto real(const BasicUntypedView<Void, Rank>& view, const char* name) const {
    return as<RealOf<T>>(view, name);
  }

 private:
  template <typename U, typename Void, int Rank>
  auto as(const BasicUntypedView<Void, Rank>& view, const char* name) const {
    if (!view.is_null()) {
      check_element_type(view.dtype, dtype_of<U>(), dtype_of<T>(), where, name);
    }
    using Element = typename BasicUntypedView<Void, Rank>::template Element<U>;
    return TensorView<Element, Rank>(static_cast<Element*>(view.data),
                                     view.shape, view.strides);
  }
};

// The options, or the request, of a call on elements of type T.
template <typename T, template <typename> class Struct>
const Struct<RealOf<T>>& of_type(FloatOrDouble<Struct> either,
                                 const char* where, const char* name) {
  const auto* typed = either.template get_if<RealOf<T>>();
  if (typed == nullptr) refuse_precision(dtype_of<T>(), where, name);
  return *typed;
}

}  // namespace regard::detail
