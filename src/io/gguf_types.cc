// SPDX-License-Identifier: Apache-2.0
#include "io/gguf_types.h"

#include <array>
#include <cassert>
#include <limits>
#include <string_view>

#include "regard/core/error.h"

namespace regard::io {

void check_gguf_type(std::uint32_t type, const std::string& where) {
  if (type > GgufType::kFloat64) {
    throw_parse_error(where.c_str(), "types of settings are 0 to ",
                      GgufType::kFloat64, "; this is ", type);
  }
}

std::size_t gguf_size_of(std::uint32_t type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    default:
      return 0;
  }
}

bool gguf_is_real(std::uint32_t type) {
  return type == GgufType::kFloat32 || type == GgufType::kFloat64;
}

std::int64_t read_gguf_integer(ByteReader& reader, std::uint32_t type) {
  constexpr const char* kWhat = "an integer";
  switch (type) {
    case GgufType::kUint8:
      return reader.number<std::uint8_t>(kWhat);
    case GgufType::kInt8:
      return reader.number<std::int8_t>(kWhat);
    case GgufType::kUint16:
      return reader.number<std::uint16_t>(kWhat);
    case GgufType::kInt16:
      return reader.number<std::int16_t>(kWhat);
    case GgufType::kUint32:
      return reader.number<std::uint32_t>(kWhat);
    case GgufType::kInt32:
      return reader.number<std::int32_t>(kWhat);
    case GgufType::kInt64:
      return reader.number<std::int64_t>(kWhat);
    default:
      break;
  }
  assert(type == GgufType::kUint64);
  const auto value = reader.number<std::uint64_t>(kWhat);
  if (value >
      static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    throw_parse_error(reader.where().c_str(),
                      "an integer has at most 63 bits; this is ", value);
  }
  return static_cast<std::int64_t>(value);
}

double read_gguf_real(ByteReader& reader, std::uint32_t type) {
  assert(gguf_is_real(type));
  return type == GgufType::kFloat32 ? reader.number<float>("a real number")
                                    : reader.number<double>("a real number");
}

std::string gguf_tensor_type_name(std::uint32_t type) {
  // The empty ones are numbers that the format no longer uses.
  static constexpr std::array<std::string_view, 40> kNames = {
      "F32",   "F16",   "Q4_0",    "Q4_1",   "",        "",      "Q5_0",
      "Q5_1",  "Q8_0",  "Q8_1",    "Q2_K",   "Q3_K",    "Q4_K",  "Q5_K",
      "Q6_K",  "Q8_K",  "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL",
      "IQ3_S", "IQ2_S", "IQ4_XS",  "I8",     "I16",     "I32",   "I64",
      "F64",   "IQ1_M", "BF16",    "",       "",        "",      "TQ1_0",
      "TQ2_0", "",      "",        "",       "MXFP4"};
  if (type < kNames.size() && !kNames[type].empty()) {
    return std::string(kNames[type]);
  }
  return "type " + std::to_string(type);
}

}  // namespace regard::io
