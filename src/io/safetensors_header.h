// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "regard/tensor/tensor.h"

namespace regard::io {

struct SafetensorsItem {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::int64_t begin = 0;  // bytes from the start of the data
  std::int64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsItem, std::less<>> items;
  std::map<std::string, std::string> metadata;
};

// Reads the JSON text of a safetensors header and checks all that it says:
// each tensor's bytes fit its shape, and together they cover `data_size` bytes
// without overlap or gap. Throws ParseError that starts with `where`.
SafetensorsHeader parse_safetensors_header(std::string_view json,
                                           std::int64_t data_size,
                                           const std::string& where);

// "F32", as safetensors spells a type.
std::string_view safetensors_name(DType dtype);

}  // namespace regard::io
