// SPDX-License-Identifier: Apache-2.0
#include "cli/scratch_folder.h"

#include <cstdint>
#include <system_error>

namespace regard::cli {
namespace fs = std::filesystem;

fs::path scratch_folder(const fs::path& log, fs::path near) {
  constexpr std::uintmax_t kLarge = std::uintmax_t{64} << 20;
  std::error_code error;
  const std::uintmax_t size = fs::file_size(log, error);
  if (error || size < kLarge) return {};
  near = fs::absolute(near, error);
  while (!fs::is_directory(near, error) && near.has_relative_path()) {
    near = near.parent_path();
  }
  return near;
}

}  // namespace regard::cli
