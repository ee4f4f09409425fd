// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace regard::io {

// The bytes of a file, mapped for reading.
class MappedFile {
 public:
  // Throws IoError that starts with `where` and names the path and the reason.
  MappedFile(const std::filesystem::path& path, const char* where);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace regard::io
