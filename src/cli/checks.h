// SPDX-License-Identifier: Apache-2.0
// What the value of an option must be. CLI11's own checks let NaN through, read
// -1 as the largest number and print bounds of three hundred digits.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

namespace regard::cli {

// A number from `low` to `high`, which may be infinite; never NaN.
CLI::Validator real_between(double low, double high);

// A whole number of 64 bits without a sign.
CLI::Validator seed_number();

// One of the names, which becomes the number that CLI11 reads as an enumerator.
template <typename Enum>
CLI::Validator one_of(std::vector<std::pair<std::string, Enum>> names) {
  const auto check = [names = std::move(names)](std::string& text) {
    std::string all;
    for (const auto& [name, value] : names) {
      if (text == name) {
        text = std::to_string(static_cast<int>(value));
        return std::string();
      }
      all += (all.empty() ? "" : ", ") + name;
    }
    return "must be one of " + all + "; got '" + text + "'";
  };
  return {check, "", "one of"};
}

}  // namespace regard::cli
