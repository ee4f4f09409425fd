// SPDX-License-Identifier: Apache-2.0
#include "io/read_file.h"

#include <array>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "regard/core/error.h"

namespace regard::io {

std::string read_file(const std::filesystem::path& path, const char* where) {
  const auto fail = [&](const std::string& reason) {
    throw_io_error(where, "cannot read '", path.string(), "': ", reason);
  };
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) fail("it is a folder");
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(std::generic_category().message(errno == 0 ? EIO : errno));
  std::string bytes;
  std::array<char, 1 << 16> part;
  do {
    in.read(part.data(), part.size());
    bytes.append(part.data(), static_cast<std::size_t>(in.gcount()));
  } while (in);
  if (in.bad()) fail(std::generic_category().message(errno == 0 ? EIO : errno));
  return bytes;
}

}  // namespace regard::io
