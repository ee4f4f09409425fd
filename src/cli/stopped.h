// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace regard::cli {

// A signal ended a command early, which has said so: exit code 128 + signal, as
// shells have it.
struct Stopped {
  int signal;
};

}  // namespace regard::cli
