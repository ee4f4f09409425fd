// SPDX-License-Identifier: Apache-2.0
#include "cli/checks.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>

namespace regard::cli {

CLI::Validator real_between(double low, double high) {
  const bool bounded = std::isfinite(high);
  const std::string rule =
      bounded ? fmt::format("must be a number from {} to {}", low, high)
              : fmt::format("must be a finite number, {} or more", low);
  const auto check = [=](const std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && std::isfinite(value) &&
        value >= low && value <= high) {
      return "";
    }
    return fmt::format("{}; got '{}'", rule, text);
  };
  return {check,
          bounded ? fmt::format("FLOAT in [{} - {}]", low, high)
                  : fmt::format("FLOAT from {}", low),
          "real"};
}

CLI::Validator seed_number() {
  const auto check = [](const std::string& text) -> std::string {
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end) return "";
    return fmt::format("must be a whole number from 0 to {}; got '{}'",
                       UINT64_MAX, text);
  };
  return {check, "", "seed"};
}

}  // namespace regard::cli
