// SPDX-License-Identifier: Apache-2.0
// From a call whose types are known at run time to one that computes in float
// or in double.
#pragma once

#include "attention/elements.h"
#include "regard/attention/attention.h"

namespace regard::detail {

[[noreturn]] void refuse_element_type(DType q, const char* where);
[[noreturn]] void refuse_precision(DType q, const char* where,
                                   const char* name);

// Double is computed in double, and nothing else is computed.
inline bool is_computed_in_float(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 ||
         dtype == DType::kFloat16;
}

// body.operator()<Real>() with the type that elements of q are computed in.
template <typename Body>
void with_real(DType q, const char* where, const Body& body) {
  if (is_computed_in_float(q)) return body.template operator()<float>();
  if (q != DType::kFloat64) refuse_element_type(q, where);
  body.template operator()<double>();
}

// The views of a call. Each must have the type that goes with that of q.
struct CallViews {
  DType q;
  const char* where;

  // What must be of the type of q, and what must be of the type that is
  // computed in.
  ConstElements like_q(const ConstUntypedView<4>& view, const char* name) const;
  Elements like_q(const UntypedView<4>& view, const char* name) const;
  template <typename Real, typename Void, int Rank>
  auto real(const BasicUntypedView<Void, Rank>& view, const char* name) const {
    if (!view.is_null()) check_type(view.dtype, dtype_of<Real>(), name);
    using Element =
        typename BasicUntypedView<Void, Rank>::template Element<Real>;
    return TensorView<Element, Rank>(static_cast<Element*>(view.data),
                                     view.shape, view.strides);
  }
  // The options, or the request.
  template <typename Real, template <typename> class Struct>
  const Struct<Real>& of_type(FloatOrDouble<Struct> either,
                              const char* name) const {
    const auto* typed = either.template get_if<Real>();
    if (typed == nullptr) refuse_precision(q, where, name);
    return *typed;
  }

 private:
  void check_type(DType came, DType wanted, const char* name) const;
};

}  // namespace regard::detail
