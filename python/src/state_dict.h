// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include "array.h"
#include "regard/tensor/tensor.h"

namespace regard::python {

// Copies: arrays by name, and tensors by name.
StateDict to_state_dict(nb::dict arrays, const char* where);
nb::dict to_dict(const StateDict& tensors);

}  // namespace regard::python
