// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "io/byte_reader.h"

namespace regard::io {

// The types of GGUF's settings, as they are numbered in the files.
struct GgufType {
  static constexpr std::uint32_t kUint8 = 0;
  static constexpr std::uint32_t kInt8 = 1;
  static constexpr std::uint32_t kUint16 = 2;
  static constexpr std::uint32_t kInt16 = 3;
  static constexpr std::uint32_t kUint32 = 4;
  static constexpr std::uint32_t kInt32 = 5;
  static constexpr std::uint32_t kFloat32 = 6;
  static constexpr std::uint32_t kBool = 7;
  static constexpr std::uint32_t kText = 8;
  static constexpr std::uint32_t kArray = 9;
  static constexpr std::uint32_t kUint64 = 10;
  static constexpr std::uint32_t kInt64 = 11;
  static constexpr std::uint32_t kFloat64 = 12;
};

// What the format allows.
inline constexpr std::uint64_t kLongestGgufName = 65535;  // of a key, in bytes
inline constexpr std::uint32_t kMostGgufDimensions = 4;

// Throws ParseError for a type that the format does not have.
void check_gguf_type(std::uint32_t type, const std::string& where);

// The bytes of one element, or 0 for texts and arrays.
std::size_t gguf_size_of(std::uint32_t type);
bool gguf_is_real(std::uint32_t type);

// Throws ParseError for an integer that does not fit in 63 bits.
std::int64_t read_gguf_integer(ByteReader& reader, std::uint32_t type);
double read_gguf_real(ByteReader& reader, std::uint32_t type);

// "Q4_K", as the format spells a tensor's type, or "type 77".
std::string gguf_tensor_type_name(std::uint32_t type);

}  // namespace regard::io
