// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "regard/core/error.h"

namespace regard::test {

// The words in which a call is refused, or "accepted".
template <typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace regard::test
