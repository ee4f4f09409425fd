// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace regard::tasks {

// A file without a name, for what is larger than memory: it is gone with the
// object, and with the process, however that ends. Throws IoError, which names
// the folder and the reason.
class ScratchFile {
 public:
  explicit ScratchFile(std::filesystem::path folder);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  std::int64_t size() const { return size_; }
  void append(std::span<const std::byte> bytes);
  void read(std::int64_t from, std::span<std::byte> to) const;
  // All of it, mapped for as long as the object lives. Nothing is appended
  // afterwards.
  std::span<const std::byte> map();

 private:
  [[noreturn]] void fail(const char* what, int error) const;

  std::filesystem::path folder_;
  int file_ = -1;
  std::int64_t size_ = 0;
  std::span<const std::byte> mapped_;
};

}  // namespace regard::tasks
