// SPDX-License-Identifier: Apache-2.0
#include "state_dict.h"

#include <nanobind/stl/string.h>

#include <cstring>

namespace regard::python {

StateDict to_state_dict(nb::dict arrays, const char* where) {
  StateDict tensors;
  for (const auto& [key, value] : arrays) {
    const auto name = nb::cast<std::string>(key);
    Array array(value, where, name.c_str());
    nb::object copy;
    if (!array.is_contiguous()) {
      copy = nb::hasattr(value, "contiguous")
                 ? nb::object(value.attr("contiguous")())
                 : numpy("ascontiguousarray")(value);
      array = Array(copy, where, name.c_str());
    }
    Tensor tensor(array.dtype(),
                  Shape(array.shape().begin(), array.shape().end()));
    if (tensor.byte_count() > 0) {
      std::memcpy(tensor.bytes(), array.data(), tensor.byte_count());
    }
    tensors.emplace(name, std::move(tensor));
  }
  return tensors;
}

nb::dict to_dict(const StateDict& tensors) {
  nb::dict arrays;
  for (const auto& [name, tensor] : tensors) {
    nb::object like = nb::none();
    if (tensor.dtype() == DType::kBFloat16) {
      // NumPy has no bfloat16 of its own.
      like =
          numpy("empty")(0, nb::module_::import_("ml_dtypes").attr("bfloat16"));
    }
    const nb::object object = new_array(like, tensor.shape(), tensor.dtype());
    const Array array(object, "state_dict", name.c_str(),
                      Array::Access::kWrite);
    if (tensor.byte_count() > 0) {
      std::memcpy(array.data(), tensor.bytes(), tensor.byte_count());
    }
    arrays[name.c_str()] = object;
  }
  return arrays;
}

}  // namespace regard::python
