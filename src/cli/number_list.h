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

// Throws UsageError, which names `flag`, unless every number is one of `count`
// heads, layers or whatever they are.
void check_below(const std::vector<std::int64_t>& numbers, std::int64_t count,
                 const std::string& flag, const std::string& what);

// What an option asks of its value: the complaint, or nothing.
std::string check_numbers(const std::string& text);

}  // namespace regard::cli
