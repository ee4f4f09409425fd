// SPDX-License-Identifier: Apache-2.0
// Pretrained models beside the encoders, and what their files share.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

#include "regard/core/error.h"
#include "regard/ops/weight_storage.h"

namespace regard::python {

void bind_language_model(nanobind::module_& m);
void bind_translator(nanobind::module_& m);

// By the names that --weights of the program has.
inline ops::WeightStorage weight_storage(std::string_view name) {
  using ops::WeightStorage;
  if (name == "float32") return WeightStorage::kFloat32;
  if (name == "bfloat16") return WeightStorage::kBFloat16;
  if (name == "int8") return WeightStorage::kInt8;
  if (name == "int4") return WeightStorage::kInt4;
  require(name == "as-stored", "load",
          "weights must be 'float32', 'bfloat16', 'int8', 'int4' or "
          "'as-stored'; got '",
          name, "'");
  return WeightStorage::kAsStored;
}

}  // namespace regard::python
