// SPDX-License-Identifier: Apache-2.0
#include "cli/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "cli/text.h"
#include "regard/core/error.h"
#include "regard/text/lines.h"
#include "regard/text/utf8.h"

namespace regard::cli {
namespace {

template <typename T, typename Holds>
Check check_number(std::string rule, Holds holds) {
  return [rule = std::move(rule), holds](const std::string& text) {
    const std::optional<T> value = number_in<T>(text);
    if (value && holds(*value)) return std::string();
    return fmt::format("must be {}; got '{}'", rule, text);
  };
}

}  // namespace

Rule whole_between(std::int64_t low, std::int64_t high) {
  return {check_number<std::int64_t>(
              fmt::format("a whole number from {} to {}", low, high),
              [=](std::int64_t n) { return low <= n && n <= high; }),
          fmt::format("INT in [{} - {}]", low, high)};
}

Rule real_between(double low, double high) {
  const bool bounded = std::isfinite(high);
  return {
      check_number<double>(
          bounded ? fmt::format("a number from {} to {}", low, high)
                  : fmt::format("a finite number, {} or more", low),
          [=](double x) { return std::isfinite(x) && low <= x && x <= high; }),
      bounded ? fmt::format("FLOAT in [{} - {}]", low, high)
              : fmt::format("FLOAT from {}", low)};
}

Rule real_below(double low, double high) {
  return {check_number<double>(
              fmt::format("a number from {} to below {}", low, high),
              [=](double x) { return low <= x && x < high; }),
          fmt::format("FLOAT in [{} - {})", low, high)};
}

Rule real_above(double low, double high) {
  return {check_number<double>(
              fmt::format("a number above {} and at most {}", low, high),
              [=](double x) { return low < x && x <= high; }),
          fmt::format("FLOAT in ({} - {}]", low, high)};
}

Rule member_of(std::vector<std::string> names) {
  const std::string all = fmt::format("{}", fmt::join(names, ","));
  const auto check = [names = std::move(names)](const std::string& text) {
    if (std::find(names.begin(), names.end(), text) != names.end()) {
      return std::string();
    }
    return fmt::format("must be one of {}; got '{}'", fmt::join(names, ", "),
                       text);
  };
  return {check, "{" + all + "}"};
}

void check_utf8(const std::vector<std::string>& texts, const char* command) {
  for (const std::string& text : texts) {
    require(text::find_invalid_utf8(text) == std::string::npos, command,
            "a text must be UTF-8; '", on_one_line(text), "' is not");
  }
}

void check_words(const std::vector<std::string>& texts, const char* command) {
  check_utf8(texts, command);
  for (const std::string& text : texts) {
    require(!text::is_blank(text), command, "a text must not be blank; got '",
            text, "'");
  }
}

}  // namespace regard::cli
