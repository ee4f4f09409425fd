// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace regard::io {

// The integers of some elements: groups of them share a scale and perhaps a
// minimum, and an element is scale * (code - zero) + minimum.
struct GgufCodes {
  std::int8_t* codes = nullptr;
  float* scales = nullptr;  // one for each group
  float* minima = nullptr;  // likewise, where the type has them
};

// How tensors of one type lie in a GGUF file: blocks of so many elements, each
// of so many bytes.
struct GgufTensorType {
  const char* name;
  std::int64_t block_elements;
  std::int64_t block_bytes;
  // Of floats: the values. `from` need not be aligned.
  void (*read)(const std::byte* from, std::int64_t blocks, float* to) = nullptr;
  // Of integers: their groups.
  void (*read_codes)(const std::byte* from, std::int64_t blocks,
                     const GgufCodes& to) = nullptr;
  std::int64_t group = 0;
  int zero = 0;
  bool four_bits = false;  // codes are 0 .. 15, else -128 .. 127
  bool has_minima = false;
  bool half_scales = false;  // scales and minima are half floats
};

// The values of whole blocks, as the format defines them: each operation in
// float, rounded once.
void read_gguf_values(const GgufTensorType& type, const std::byte* from,
                      std::int64_t blocks, float* to);

// The type with this number in the files, or null where it is not read.
const GgufTensorType* gguf_tensor_type(std::uint32_t type);

}  // namespace regard::io
