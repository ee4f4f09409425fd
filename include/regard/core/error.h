// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>

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

// A value that is not text or a number, and how it is written.
struct Streamed {
  const void* value;
  void (*write)(std::ostream&, const void*);
};

// One part of a message, borrowed until the message is made. There are about a
// thousand places that make one, nearly all with types of their own (the length
// of a literal is part of its type): behind this one, they share one function.
struct MessagePart {
  std::variant<std::string_view, std::int64_t, std::uint64_t, double, char,
               Streamed>
      value;

  template <typename T>
  MessagePart(const T& part) {  // NOLINT: implicit, so that a list converts
    if constexpr (std::convertible_to<const T&, std::string_view>) {
      value = std::string_view(part);
    } else if constexpr (std::same_as<T, char>) {
      value = part;
    } else if constexpr (std::signed_integral<T> && sizeof(T) > 1) {
      value = static_cast<std::int64_t>(part);
    } else if constexpr (std::unsigned_integral<T> && sizeof(T) > 1) {
      value = static_cast<std::uint64_t>(part);
    } else if constexpr (std::same_as<T, float> || std::same_as<T, double>) {
      value = static_cast<double>(part);
    } else {
      value = Streamed{&part, [](std::ostream& out, const void* at) {
                         out << *static_cast<const T*>(at);
                       }};
    }
  }
};

using MessageParts = std::initializer_list<MessagePart>;

// "where: part part ...", each as a stream writes it.
std::string compose(const char* where, MessageParts parts);

// Error is one of the three above.
template <typename Error>
[[noreturn]] void throw_composed(const char* where, MessageParts parts);

}  // namespace detail

// require(kv_heads > 0, "attention_forward", "kv_heads must be positive; got ",
//         kv_heads);
//
// The parts are only formatted when the rule is broken.
template <typename... Parts>
void require(bool rule, const char* where, const Parts&... parts) {
  if (!rule) [[unlikely]] {
    detail::throw_composed<InvalidArgument>(where, {parts...});
  }
}

template <typename... Parts>
[[noreturn]] void throw_io_error(const char* where, const Parts&... parts) {
  detail::throw_composed<IoError>(where, {parts...});
}

template <typename... Parts>
[[noreturn]] void throw_parse_error(const char* where, const Parts&... parts) {
  detail::throw_composed<ParseError>(where, {parts...});
}

}  // namespace regard
