// SPDX-License-Identifier: Apache-2.0
#include "io/quote.h"

#include "core/escaped.h"

namespace regard::io {

std::string in_quotes(std::string_view text) {
  return "'" + detail::escaped(text) + "'";
}

}  // namespace regard::io
