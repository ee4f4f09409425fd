// SPDX-License-Identifier: Apache-2.0
#include "attention/untyped.h"

namespace regard::detail {

void refuse_element_type(DType q, const char* where) {
  throw InvalidArgument(
      compose(where, "q must be float32, bfloat16, float16 or float64; it is ",
              to_string(q)));
}

void refuse_precision(DType q, const char* where, const char* name) {
  throw InvalidArgument(compose(where, name, " must be those in ",
                                q == DType::kFloat64 ? "double" : "float",
                                " where q is ", to_string(q)));
}

void check_element_type(DType came, DType wanted, DType q, const char* where,
                        const char* name) {
  require(came == wanted, where, name, " must be ", to_string(wanted),
          " where q is ", to_string(q), "; it is ", to_string(came));
}

}  // namespace regard::detail
