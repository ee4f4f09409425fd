// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace regard::cli {

// The command line makes no sense, whatever the files hold: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace regard::cli
