// SPDX-License-Identifier: Apache-2.0
#include "cli/number_list.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "cli/text.h"
#include "cli/usage_error.h"

namespace regard::cli {
namespace {

constexpr std::int64_t kMost = 10000;

// Takes a number from the front. False: there is none, or it is too large.
bool take_number(std::string_view& text, std::int64_t& number) {
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number >= kMost) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::vector<std::int64_t> parse_numbers(const std::string& text,
                                        const std::string& flag) {
  std::vector<std::int64_t> numbers;
  std::string_view rest = text;
  while (!rest.empty()) {
    std::int64_t first = 0;
    bool good = take_number(rest, first);
    std::int64_t last = first;
    if (good && take(rest, '-')) good = take_number(rest, last);
    good = good && first <= last &&
           (rest.empty() || (take(rest, ',') && !rest.empty()));
    if (!good) {
      throw UsageError(fmt::format("{} is a list such as 0-3 or 0,5; got {}",
                                   flag, on_one_line(text)));
    }
    for (std::int64_t i = first; i <= last; ++i) numbers.push_back(i);
  }
  return numbers;
}

void check_below(const std::vector<std::int64_t>& numbers, std::int64_t count,
                 const std::string& flag, const std::string& what) {
  for (const std::int64_t number : numbers) {
    if (number >= 0 && number < count) continue;
    throw UsageError(fmt::format("{}: there are {} 0 .. {}; got {}", flag, what,
                                 count - 1, number));
  }
}

std::string check_numbers(const std::string& text) {
  try {
    parse_numbers(text, "it");
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

}  // namespace regard::cli
