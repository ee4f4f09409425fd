// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdio>
#include <iterator>
#include <string>

namespace regard::detail {

// Three figures and the unit that makes them readable.
inline std::string scaled(double value, const char* unit) {
  const char* const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  std::size_t i = 0;
  while (value >= 999.5 && i + 1 < std::size(prefixes)) {
    value /= 1000;
    ++i;
  }
  char text[64];
  std::snprintf(text, sizeof text, "%.3g %s%s", value, prefixes[i], unit);
  return text;
}

}  // namespace regard::detail
