// SPDX-License-Identifier: Apache-2.0
#include "attention/untyped.h"

namespace regard::detail {

void refuse_element_type(DType q, const char* where) {
  throw_composed<InvalidArgument>(
      where, {"q must be float32, bfloat16, float16 or float64; it is ",
              to_string(q)});
}

void refuse_precision(DType q, const char* where, const char* name) {
  throw_composed<InvalidArgument>(
      where,
      {name, " must be those in ", q == DType::kFloat64 ? "double" : "float",
       " where q is ", to_string(q)});
}

ConstElements CallViews::like_q(const ConstUntypedView<4>& view,
                                const char* name) const {
  if (!view.is_null()) check_type(view.dtype, q, name);
  return ConstElements(view);
}

Elements CallViews::like_q(const UntypedView<4>& view, const char* name) const {
  if (!view.is_null()) check_type(view.dtype, q, name);
  return Elements(view);
}

void CallViews::check_type(DType came, DType wanted, const char* name) const {
  require(came == wanted, where, name, " must be ", to_string(wanted),
          " where q is ", to_string(q), "; it is ", to_string(came));
}

}  // namespace regard::detail
