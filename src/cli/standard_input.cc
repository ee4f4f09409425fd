// SPDX-License-Identifier: Apache-2.0
#include "cli/standard_input.h"

#include <iostream>
#include <string_view>
#include <utility>

#include "regard/core/error.h"
#include "regard/text/utf8.h"

namespace regard::cli {

std::istream& standard_input() {
  std::ios::sync_with_stdio(false);
  return std::cin;
}

InputLines::InputLines(std::string command)
    : in_(standard_input()), command_(std::move(command)) {}

bool InputLines::next(std::string& line) {
  if (!std::getline(in_, line)) {
    if (in_.bad()) throw_io_error("standard input", "it cannot be read");
    return false;
  }
  ++number_;
  constexpr std::string_view kMark = "\xEF\xBB\xBF";  // the byte-order mark
  if (number_ == 1 && line.starts_with(kMark)) line.erase(0, kMark.size());
  if (line.ends_with('\r')) line.pop_back();
  if (text::find_invalid_utf8(line) != std::string::npos) {
    throw_parse_error(command_.c_str(), "standard input must be UTF-8; line ",
                      number_, " is not");
  }
  return true;
}

// in_avail() is 0 where reading more would wait.
bool InputLines::waits() const { return in_.rdbuf()->in_avail() <= 0; }

}  // namespace regard::cli
