// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "regard/tensor/tensor.h"
#include "regard/tensor/tensor_view.h"

namespace regard {

// A GGUF file (versions 2 and 3, little-endian), open for reading: settings and
// float32 tensors. The file is mapped into memory, so that nothing is read
// before it is used and views need no copy. It must not be cut shorter while it
// is open.
//
// Everything is checked before open() returns: counts and lengths before they
// are used, keys and names that come twice, tensors of another type than F32
// (refused by the type's name), shapes and offsets that do not fit the file,
// tensors that overlap. A broken file throws ParseError, one that cannot be
// read IoError; both texts name the file.
class GgufFile {
 public:
  static GgufFile open(const std::filesystem::path& path);
  // The same for bytes in memory, which are borrowed, not copied, and must be
  // aligned for float.
  static GgufFile parse(std::span<const std::byte> bytes);

  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  std::vector<std::string> names() const;  // of tensors, sorted
  bool contains(std::string_view name) const;
  // Slowest dimension first, as everywhere in regard; the file has them the
  // other way round. Both throw InvalidArgument where no tensor has the name.
  const Shape& shape(std::string_view name) const { return find(name).shape; }
  std::span<const float> values(std::string_view name) const {
    return find(name).values;
  }

  // The settings. A setting of another type than asked for throws ParseError;
  // one that is not there gives nothing.
  std::vector<std::string> keys() const;  // sorted
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> real(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;
  std::optional<std::vector<std::string_view>> texts(
      std::string_view key) const;
  std::optional<std::vector<double>> reals(std::string_view key) const;
  std::optional<std::vector<std::int64_t>> integers(std::string_view key) const;

  // "GgufFile::open: 'model.gguf'", for the errors of those who read on.
  const std::string& where() const { return where_; }

 private:
  struct Parser;
  struct Mapping;
  struct Entry {
    Shape shape;
    std::span<const float> values;
  };
  // Integers that do not fit in 63 bits are refused. An array stays where it
  // is: its element type, count and bytes.
  struct ArrayPlace {
    std::uint32_t type = 0;
    std::uint64_t count = 0;
    std::span<const std::byte> bytes;
  };
  using Value =
      std::variant<std::int64_t, double, bool, std::string_view, ArrayPlace>;

  GgufFile(const std::string& where, std::span<const std::byte> bytes);
  const Entry& find(std::string_view name) const;
  const Value* setting(std::string_view key) const;
  const ArrayPlace* array(std::string_view key, const char* what) const;

  std::string where_;
  std::unique_ptr<const Mapping> mapping_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, Value, std::less<>> settings_;
};

}  // namespace regard
