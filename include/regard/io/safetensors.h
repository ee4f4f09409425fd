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
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/core/error.h"
#include "regard/tensor/tensor.h"
#include "regard/tensor/tensor_view.h"

namespace regard {

// A safetensors file, open for reading. The file is mapped into memory, so that
// nothing is read before it is used and views need no copy. It must not be cut
// shorter while it is open.
//
// Everything that the header says is checked before open() returns: names that
// come twice, types that regard does not have, shapes and offsets that do not
// fit each other or the file, tensors that overlap, bytes that belong to none.
// A broken file throws ParseError, one that cannot be read IoError; both texts
// name the file.
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::filesystem::path& path);
  // The same for bytes in memory, which are borrowed, not copied.
  static SafetensorsFile parse(std::span<const std::byte> bytes);

  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  std::vector<std::string> names() const;  // sorted
  bool contains(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const {
    return metadata_;
  }

  // Each of these throws InvalidArgument where no tensor has the name.
  DType dtype(std::string_view name) const { return find(name).dtype; }
  const Shape& shape(std::string_view name) const { return find(name).shape; }
  // The raw bytes, little-endian, perhaps not aligned for their type.
  std::span<const std::byte> data(std::string_view name) const {
    return find(name).data;
  }

  // The elements where they lie; the view must not outlive this object. Throws
  // InvalidArgument if the type or rank is another, or if the writer of the
  // file did not align the data for T: tensor() reads those too.
  template <typename T, int Rank>
  TensorView<const T, Rank> view(std::string_view name) const {
    const Entry& entry = find(name);
    check_view(name, entry, dtype_of<T>(), Rank, alignof(T));
    std::array<std::int64_t, Rank> extents;
    std::copy(entry.shape.begin(), entry.shape.end(), extents.begin());
    return {reinterpret_cast<const T*>(entry.data.data()), extents};
  }

  // A copy of one tensor, or of all. Throws ParseError for a bool that is
  // neither 0 nor 1.
  Tensor tensor(std::string_view name) const;
  StateDict state_dict() const;

 private:
  struct Entry {
    DType dtype;
    Shape shape;
    std::span<const std::byte> data;
  };
  struct Mapping;

  SafetensorsFile(const std::string& where, std::span<const std::byte> bytes);
  const Entry& find(std::string_view name) const;
  void check_view(std::string_view name, const Entry& entry, DType dtype,
                  int rank, std::size_t alignment) const;
  void check_bools(std::string_view name, const Entry& entry) const;

  std::string where_;  // for the texts of later errors
  std::unique_ptr<const Mapping> mapping_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<std::string, std::string> metadata_;
};

// Writes a file that every reader of safetensors can map: data aligned for its
// type, tensors with wider elements first, then by name. The file appears whole
// or not at all: an old one stays until the new one is safely on the disk.
// Throws InvalidArgument for a name that the format cannot hold, IoError where
// the system refuses.
void save_safetensors(const std::filesystem::path& path, const StateDict& state,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace regard
