// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <istream>
#include <string>

namespace regard::cli {

// std::cin, of which a read that fails says so: as long as C's streams share
// it, that looks like the end. For what reads nothing from C's stdin.
std::istream& standard_input();

// The lines of standard input one by one, as text::read_lines has them all at
// once.
class InputLines {
 public:
  // `command` stands in the texts of errors.
  explicit InputLines(std::string command);

  // The next line; false where there is none. Throws IoError where standard
  // input cannot be read, and ParseError for a line that is not UTF-8.
  bool next(std::string& line);
  // Would next() have to wait for somebody who types, or another program?
  bool waits() const;

 private:
  std::istream& in_;
  std::string command_;
  std::int64_t number_ = 0;  // of the last line, from 1 on
};

}  // namespace regard::cli
