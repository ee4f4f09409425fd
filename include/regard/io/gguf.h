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

namespace io {
struct GgufTensorType;
}

// A GGUF file (versions 2 and 3, little-endian), open for reading: settings and
// tensors of the types F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K
// and Q6_K. The file is mapped into memory, so that nothing is read before it
// is used. It must not be cut shorter while it is open.
//
// Everything is checked before open() returns: counts and lengths before they
// are used, keys and names that come twice, tensors of another type (refused by
// its name), rows that are no whole blocks of their type, shapes and offsets
// that do not fit the file, tensors that overlap. A broken file throws
// ParseError, one that cannot be read IoError; both texts name the file.
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
  // other way round. Each of these throws InvalidArgument where no tensor has
  // the name.
  const Shape& shape(std::string_view name) const { return find(name).shape; }
  // As the format spells it: "Q4_K".
  std::string_view type(std::string_view name) const;
  // The elements of an F32 tensor where they lie. Throws InvalidArgument for
  // another type.
  std::span<const float> values(std::string_view name) const;
  // The blocks of any tensor as they lie.
  std::span<const std::byte> data(std::string_view name) const {
    return find(name).data;
  }
  // A copy in float32 of any type. Quantised values are those that the format
  // defines, bit for bit: x = d * q + m with each operation rounded to float.
  Tensor tensor(std::string_view name) const;

  // The integers of a quantised tensor, for products that compute with them: a
  // group of consecutive elements of a row shares a scale and perhaps a
  // minimum, and an element is scale * code + minimum.
  struct Groups {
    std::int64_t group = 32;
    bool four_bits = false;    // codes are 0 .. 15, else -128 .. 127
    bool half_scales = false;  // scales and minima are half floats
    bool has_minima = false;
  };
  // Nothing for a tensor of floats.
  std::optional<Groups> groups(std::string_view name) const;
  // One row: codes [columns], scales and minima [columns / group].
  void read_groups(std::string_view name, std::int64_t row, std::int8_t* codes,
                   float* scales, float* minima) const;

  // The settings. A setting of another type than asked for throws ParseError;
  // one that is not there gives nothing.
  std::vector<std::string> keys() const;  // sorted
  // One as it lies in the file, with its key and its type. Throws
  // InvalidArgument where there is no such key.
  std::span<const std::byte> setting_bytes(std::string_view key) const;
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
    const io::GgufTensorType* type;
    std::span<const std::byte> data;
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
  struct Setting {
    Value value;
    std::span<const std::byte> bytes;
  };

  GgufFile(const std::string& where, std::span<const std::byte> bytes);
  const Entry& find(std::string_view name) const;
  const Value* setting(std::string_view key) const;
  const ArrayPlace* array(std::string_view key, const char* what) const;

  std::string where_;
  std::unique_ptr<const Mapping> mapping_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, Setting, std::less<>> settings_;
};

// A tensor to be written.
struct GgufTensor {
  std::string name;
  Shape shape;
  std::string type;  // "Q8_0"
  // Its blocks, asked for when their turn comes, so that a model need not be in
  // memory whole.
  std::function<std::vector<std::byte>()> blocks;
};

// Writes a file of version 3 with the settings of another file, but for `set`,
// which it has as 32-bit numbers. It appears whole or not at all. Throws
// InvalidArgument for what GgufFile would not read back (types, shapes, names
// that come twice or are too long), for a general.alignment in `set` and for
// blocks that are not as many as the shape says, IoError where the system
// refuses.
void save_gguf(const std::filesystem::path& path, const GgufFile& settings_of,
               const std::map<std::string, std::uint32_t>& set,
               std::span<const GgufTensor> tensors);

}  // namespace regard
