// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace regard {

// Every failure that regard reports is one of three. The text always reads
// "where: what rule was broken; what came", so it can be shown to a user as is.

// The caller broke a rule of a function. Nothing has been written.
class InvalidArgument : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// The world refused: a file is missing, the disk is full, memory is short.
class IoError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A file or a text is not what its format demands.
class ParseError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {

template <typename... Parts>
std::string compose(const char* where, const Parts&... parts) {
  std::ostringstream text;
  text << where << ": ";
  (text << ... << parts);
  return text.str();
}

}  // namespace detail

// require(kv_heads > 0, "attention_forward", "kv_heads must be positive; got ",
//         kv_heads);
//
// The parts are only formatted when the rule is broken.
template <typename... Parts>
void require(bool rule, const char* where, const Parts&... parts) {
  if (!rule) [[unlikely]] {
    throw InvalidArgument(detail::compose(where, parts...));
  }
}

template <typename... Parts>
[[noreturn]] void throw_io_error(const char* where, const Parts&... parts) {
  throw IoError(detail::compose(where, parts...));
}

template <typename... Parts>
[[noreturn]] void throw_parse_error(const char* where, const Parts&... parts) {
  throw ParseError(detail::compose(where, parts...));
}

}  // namespace regard
