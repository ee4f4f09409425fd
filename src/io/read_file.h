// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace regard::io {

// All bytes of a file, or of a pipe until it ends. Throws IoError that starts
// with `where` and names the path and the reason.
std::string read_file(const std::filesystem::path& path, const char* where);

// Is there something of this name, of whatever kind? A link to nothing and what
// may not be looked at are there: to read them says what is wrong.
bool is_there(const std::filesystem::path& path);

// The files of a model, and pictures, are regular ones. Throws IoError as above
// for any other: a pipe may never end, nor begin.
void check_regular(const std::filesystem::path& path, const char* where);
std::string read_regular(const std::filesystem::path& path, const char* where);
// Its first bytes, at most `count`.
std::string read_start(const std::filesystem::path& path, std::size_t count,
                       const char* where);

}  // namespace regard::io
