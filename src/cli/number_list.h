// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace regard::cli {

// "0-3,7" -> 0 1 2 3 7; "" -> none. Throws UsageError, which names `flag`, for
// anything else.
std::vector<std::int64_t> parse_numbers(const std::string& text,
                                        const std::string& flag);

// What CLI11 asks of an option's value: the complaint, or nothing.
std::string check_numbers(const std::string& text);

}  // namespace regard::cli
