// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "regard/tensor/tensor.h"

namespace regard::cli {

// 16 hexadecimal digits that change when a byte does: for noticing that a file
// was changed, not for keeping out whoever wants to fool us.
std::string content_hash(std::span<const std::byte> bytes);
std::string content_hash(std::string_view text);
std::string content_hash(const StateDict& weights);  // values, by name
// Of a file, mapped. Throws IoError.
std::string file_hash(const std::filesystem::path& path);

}  // namespace regard::cli
