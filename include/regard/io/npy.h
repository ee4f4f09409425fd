// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "regard/tensor/tensor.h"

namespace regard {

// NumPy's .npy files: one array each, of a little-endian type that regard has
// (f2, f4, f8, i1, u1, i4, i8, b1), format versions 1.0, 2.0 and 3.0. An array
// in Fortran order is put into C order. A file that is not what the format
// demands throws ParseError, one that cannot be read IoError; both texts name
// the file.
Tensor load_npy(const std::filesystem::path& path);

// The same for the bytes of such a file.
Tensor parse_npy(std::span<const std::byte> bytes);

// Writes version 1.0 in C order, whole or not at all: an old file stays until
// the new one is safely on the disk. Throws InvalidArgument for bfloat16, which
// NumPy does not have, IoError where the system refuses.
void save_npy(const std::filesystem::path& path, const Tensor& tensor);

}  // namespace regard
