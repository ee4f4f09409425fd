// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "regard/tensor/tensor.h"

namespace regard::io {

// The version 1.0 cannot count further; no array of plain numbers needs more.
constexpr std::uint32_t kLongestNpyHeader = 65535;
// As many as NumPy itself allows.
constexpr std::int64_t kMostNpyDimensions = 64;

struct NpyHeader {
  DType dtype = DType::kFloat32;
  bool fortran_order = false;
  Shape shape;  // element_count(shape) is known not to throw
};

// Reads the text of a .npy header, a Python dictionary with the keys descr,
// fortran_order and shape. Throws ParseError that starts with `where`.
NpyHeader parse_npy_header(std::string_view text, const std::string& where);

// "<f4", as NumPy spells a type; there is none for bfloat16.
std::string_view npy_name(DType dtype);

// The bytes of a file of version 1.0 before its data.
std::string npy_start(DType dtype, const Shape& shape);

}  // namespace regard::io
