// SPDX-License-Identifier: Apache-2.0
// What the readers of other systems' translators share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <vector>

#include "json/json.h"
#include "regard/tensor/tensor.h"

namespace regard::tasks {

// Matrices of as many columns, or vectors, one below the other. Throws
// InvalidArgument where they do not fit.
Tensor stacked(std::initializer_list<const Tensor*> parts);

// Rows [first, ...) of a matrix.
Tensor rows_from(const Tensor& matrix, std::int64_t first);

Tensor as_float32(const Tensor& tensor, const std::string& name);

// The object in a file of JSON. Throws ParseError.
Json read_json_object(const std::filesystem::path& path);

// A whole number from 1 to 2^24 in it. Throws ParseError; `fallback` 0: it must
// be there.
std::int64_t size_in(const Json& config, const char* key,
                     const std::filesystem::path& path,
                     std::int64_t fallback = 0);

// A text in it; `fallback` where it is missing. Throws ParseError.
std::string text_in(const Json& config, const char* key,
                    const std::filesystem::path& path,
                    const std::string& fallback);

}  // namespace regard::tasks
