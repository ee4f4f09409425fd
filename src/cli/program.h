// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace regard::cli {

// The program, with main's arguments. Returns the exit code: 0, 1 if an input
// is at fault, 2 if the command line is; then one line on standard error says
// why. 128 + signal if one stopped it.
int run_program(int argc, const char* const* argv);

}  // namespace regard::cli
