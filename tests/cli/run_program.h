// SPDX-License-Identifier: Apache-2.0
// Runs the real program, as a shell or a terminal would.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "io/files.h"

namespace regard::test {

struct Ended {
  int code = -1;
  std::string out;
  std::string err;
};

using Environment = std::map<std::string, std::string>;

// With pipes for its output, and a file, or a folder, as its standard input.
// Only `environment` is set.
Ended run_regard(const std::vector<std::string>& arguments,
                 const Environment& environment = {},
                 const std::string& input = "/dev/null");

// On a terminal of so many columns where somebody types; `out` holds what both
// streams wrote.
Ended run_on_terminal(const std::vector<std::string>& arguments, int columns,
                      const Environment& environment,
                      const std::string& typed = {});

// What `out` looks like without its escape sequences.
std::string without_color(const std::string& text);

}  // namespace regard::test
