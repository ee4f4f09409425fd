// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace regard::io {

// All bytes of a file, or of a pipe until it ends. Throws IoError that starts
// with `where` and names the path and the reason.
std::string read_file(const std::filesystem::path& path, const char* where);

}  // namespace regard::io
