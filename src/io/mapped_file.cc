// SPDX-License-Identifier: Apache-2.0
#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "regard/core/error.h"

namespace regard::io {
namespace {

[[noreturn]] void fail(const char* where, const std::filesystem::path& path,
                       const std::string& reason) {
  throw_io_error(where, "cannot read '", path.string(), "': ", reason);
}

std::string reason_of(int error) {
  return std::generic_category().message(error);
}

// The kernel keeps the mapping without the descriptor.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path, const char* where) {
  // Without O_NONBLOCK, opening a named pipe would wait for its writer.
  const Descriptor file(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) fail(where, path, reason_of(errno));
  struct stat status = {};
  if (::fstat(file.number(), &status) != 0) {
    fail(where, path, reason_of(errno));
  }
  if (S_ISDIR(status.st_mode)) fail(where, path, "it is a folder");
  if (!S_ISREG(status.st_mode)) fail(where, path, "it is not a regular file");
  if (status.st_size == 0) return;  // an empty mapping is not allowed
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (data == MAP_FAILED) fail(where, path, reason_of(errno));
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace regard::io
