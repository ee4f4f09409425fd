// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>

#include "regard/tensor/tensor.h"

namespace regard::cli {

// A tensor as a user names it: "x.npy", or "model.safetensors:name". The name
// may be left out where it is not needed.
struct TensorPlace {
  std::filesystem::path path;
  std::string name;
  bool is_safetensors = false;
};

// Throws InvalidArgument where the text ends in neither.
TensorPlace parse_place(const std::string& text);

// "" if parse_place takes it, or what is wrong: a check for the command line.
std::string check_place(const std::string& text);

// Without a name, a safetensors file must hold one tensor only.
Tensor load_tensor(const std::string& place);

// Writes whole or not at all. .npy has no bfloat16: such a tensor is written as
// float32. `name` is used where the place has none.
void save_tensor(const std::string& place, const std::string& name,
                 const Tensor& tensor);

// Throws IoError if no file can be made there, before hours are spent on what
// shall be in it.
void check_can_save(const std::string& place);
// The same for a file of any kind.
void check_can_write(const std::filesystem::path& path);

bool is_floating(DType dtype);

// The same numbers in another floating type, rounded to nearest; moved, not
// copied, if it is the type already. Throws InvalidArgument for bool.
Tensor converted(Tensor tensor, DType dtype);

// "float32", "bfloat16", "float16" or "float64".
DType parse_dtype(const std::string& name);

// "" if parse_dtype takes it, or what is wrong: a check for the command line.
std::string check_dtype(const std::string& name);

// The shape with ones put in front, as NumPy broadcasts. Throws InvalidArgument
// in the name of `what` for more than four dimensions.
std::array<std::int64_t, 4> broadcast_shape(const Tensor& tensor,
                                            const char* what);

}  // namespace regard::cli
