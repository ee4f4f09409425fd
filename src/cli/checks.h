// SPDX-License-Identifier: Apache-2.0
// What the value of an option must be.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "cli/options.h"

namespace regard::cli {

// A whole number from `low` to `high`.
Rule whole_between(std::int64_t low, std::int64_t high);

// A number from `low` to `high`, which may be infinite; never NaN.
Rule real_between(double low, double high);

// The same for [low, high) and for (low, high].
Rule real_below(double low, double high);
Rule real_above(double low, double high);

// One of the names.
Rule member_of(std::vector<std::string> names);

// Texts of the command line. Throws InvalidArgument, which names the command,
// for one that is not UTF-8; the second one also for one that is blank.
void check_utf8(const std::vector<std::string>& texts, const char* command);
void check_words(const std::vector<std::string>& texts, const char* command);

// The whole text as a number that the type holds, or nothing.
template <typename T>
std::optional<T> number_in(const std::string& text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace regard::cli
