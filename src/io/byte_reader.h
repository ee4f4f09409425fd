// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "regard/core/error.h"

namespace regard::io {

static_assert(std::endian::native == std::endian::little,
              "the bytes of the files are used as they are");

// Reads little-endian numbers one after the other and never past the end: a
// file that is too short throws ParseError "where: it ends within `what`".
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string where)
      : bytes_(bytes), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  std::size_t position() const { return position_; }
  std::size_t left() const { return bytes_.size() - position_; }

  std::span<const std::byte> take(std::uint64_t count, const char* what) {
    if (count > left()) {
      throw_parse_error(where_.c_str(), "the file ends within ", what, ": ",
                        count, " bytes are wanted at byte ", position_, ", ",
                        left(), " are left");
    }
    const auto part =
        bytes_.subspan(position_, static_cast<std::size_t>(count));
    position_ += part.size();
    return part;
  }

  template <typename T>
  T number(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string_view text(std::uint64_t length, const char* what) {
    const auto part = take(length, what);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  std::string where_;
  std::size_t position_ = 0;
};

}  // namespace regard::io
