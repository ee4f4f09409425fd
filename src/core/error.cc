// SPDX-License-Identifier: Apache-2.0
#include "regard/core/error.h"

#include <sstream>

namespace regard::detail {

std::string compose(const char* where, MessageParts parts) {
  std::ostringstream text;
  text << where << ": ";
  for (const MessagePart& part : parts) {
    std::visit(
        [&](const auto& value) {
          if constexpr (std::same_as<decltype(value), const Streamed&>) {
            value.write(text, value.value);
          } else {
            text << value;
          }
        },
        part.value);
  }
  return text.str();
}

template <typename Error>
void throw_composed(const char* where, MessageParts parts) {
  throw Error(compose(where, parts));
}

template void throw_composed<InvalidArgument>(const char*, MessageParts);
template void throw_composed<IoError>(const char*, MessageParts);
template void throw_composed<ParseError>(const char*, MessageParts);

}  // namespace regard::detail
