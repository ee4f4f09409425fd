// SPDX-License-Identifier: Apache-2.0
#include "io/read_file.h"

#include <array>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "regard/core/error.h"

namespace regard::io {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const char* where,
                       const std::string& reason) {
  throw_io_error(where, "cannot read '", path.string(), "': ", reason);
}

[[noreturn]] void fail_for_errno(const fs::path& path, const char* where) {
  fail(path, where, std::generic_category().message(errno == 0 ? EIO : errno));
}

std::ifstream opened(const fs::path& path, const char* where) {
  std::error_code error;
  if (fs::is_directory(path, error)) fail(path, where, "it is a folder");
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) fail_for_errno(path, where);
  return in;
}

}  // namespace

std::string read_file(const fs::path& path, const char* where) {
  std::ifstream in = opened(path, where);
  std::string bytes;
  std::array<char, 1 << 16> part;
  do {
    in.read(part.data(), part.size());
    bytes.append(part.data(), static_cast<std::size_t>(in.gcount()));
  } while (in);
  if (in.bad()) fail_for_errno(path, where);
  return bytes;
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

void check_regular(const fs::path& path, const char* where) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::directory) fail(path, where, "it is a folder");
  if (type == fs::file_type::none || type == fs::file_type::not_found) {
    fail(path, where, error ? error.message() : "it is not there");
  }
  if (type != fs::file_type::regular) {
    fail(path, where, "it is not a regular file");
  }
}

std::string read_regular(const fs::path& path, const char* where) {
  check_regular(path, where);
  return read_file(path, where);
}

std::string read_start(const fs::path& path, std::size_t count,
                       const char* where) {
  check_regular(path, where);
  std::ifstream in = opened(path, where);
  std::string start(count, '\0');
  in.read(start.data(), static_cast<std::streamsize>(count));
  if (in.bad()) fail_for_errno(path, where);
  start.resize(static_cast<std::size_t>(in.gcount()));
  return start;
}

}  // namespace regard::io
