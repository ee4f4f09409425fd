// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace regard::cli {

// Where a log is kept while it is used, for InteractionFormat::scratch: the
// folder `near`, or the nearest above it that is there, for a file that is
// large; none for one that memory holds easily.
std::filesystem::path scratch_folder(const std::filesystem::path& log,
                                     std::filesystem::path near);

}  // namespace regard::cli
