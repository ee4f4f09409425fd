// SPDX-License-Identifier: Apache-2.0
#include "tasks/scratch_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "regard/core/error.h"

namespace regard::tasks {

ScratchFile::ScratchFile(std::filesystem::path folder)
    : folder_(std::move(folder)) {
  std::string name = (folder_ / ".scratch-XXXXXX").string();
  file_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (file_ < 0) fail("make", errno);
  ::unlink(name.c_str());
}

ScratchFile::~ScratchFile() {
  if (!mapped_.empty()) {
    ::munmap(const_cast<std::byte*>(mapped_.data()), mapped_.size());
  }
  ::close(file_);
}

void ScratchFile::fail(const char* what, int error) const {
  throw_io_error("ScratchFile", "cannot ", what, " a file in '",
                 folder_.string(), "' for what is larger than memory: ",
                 std::generic_category().message(error));
}

void ScratchFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ::ssize_t written =
        ::pwrite(file_, bytes.data(), bytes.size(), size_);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("write", written < 0 ? errno : ENOSPC);
    size_ += written;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void ScratchFile::read(std::int64_t from, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ::ssize_t count = ::pread(file_, to.data(), to.size(), from);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("read", count < 0 ? errno : EIO);
    from += count;
    to = to.subspan(static_cast<std::size_t>(count));
  }
}

std::span<const std::byte> ScratchFile::map() {
  if (!mapped_.empty() || size_ == 0) return mapped_;
  const auto bytes = static_cast<std::size_t>(size_);
  void* const data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file_, 0);
  if (data == MAP_FAILED) fail("map", errno);
  mapped_ = {static_cast<const std::byte*>(data), bytes};
  return mapped_;
}

}  // namespace regard::tasks
