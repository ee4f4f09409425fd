// SPDX-License-Identifier: Apache-2.0
// A value of Python as C++ wants it. Each function throws TypeError for a value
// of another type and ValueError for one that is not allowed, in the name of
// `where`.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "array.h"

namespace regard::python {

double to_double(nb::handle value, const char* where, std::string_view name);
std::int64_t to_integer(nb::handle value, const char* where,
                        std::string_view name);
// Negative seeds, which PyTorch hands out, count modulo 2^64.
std::uint64_t to_seed(nb::handle value, const char* where);
int to_threads(nb::handle value, const char* where);
// Whatever Python can test: numpy.True_ and 1 are true.
bool to_bool(nb::handle value);
// Borrowed from `value`.
std::string_view to_text(nb::handle value, const char* where,
                         std::string_view name);

// One of several words.
template <typename T>
T to_choice(nb::handle value, const char* where, std::string_view name,
            std::initializer_list<std::pair<std::string_view, T>> choices) {
  const std::string_view word = to_text(value, where, name);
  std::string known;
  for (const auto& [choice, meaning] : choices) {
    if (choice == word) return meaning;
    known.append(known.empty() ? "" : " or ")
        .append("'")
        .append(choice)
        .append("'");
  }
  require(false, where, name, " must be ", known, "; got '", word, "'");
  return {};
}

// `array`, of NumPy, as one of `type`, which is int64 or int32: bools and
// floats are refused, they would become other numbers.
nb::object as_integers(const nb::object& array, DType type, const char* where,
                       const char* name);

// An array or a list of integers in one dimension.
std::vector<std::int64_t> to_integers(nb::handle value, const char* where,
                                      const char* name);

}  // namespace regard::python
