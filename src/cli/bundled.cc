// SPDX-License-Identifier: Apache-2.0
#include "cli/bundled.h"

#include <filesystem>
#include <system_error>

#include "regard/core/error.h"

namespace regard::cli {

namespace fs = std::filesystem;

std::string bundled_model(const std::string& name) {
  std::error_code failed;
  const fs::path program = fs::canonical("/proc/self/exe", failed);
  const fs::path folder =
      (program.parent_path() / REGARD_DATA_FROM_PROGRAM / "models" / name)
          .lexically_normal();
  if (failed || !fs::exists(folder / "config.json", failed)) {
    throw_io_error("model", "the bundled model is not in '", folder.string(),
                   "'; --model FOLDER names another, and cmake --install puts "
                   "the models next to the program");
  }
  return folder.string();
}

}  // namespace regard::cli
