// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace regard::text {

// The lines of a text, one after the other. Of a file or a pipe no more than a
// part is in memory at a time, and never less than a line.
class LineReader {
 public:
  explicit LineReader(std::string text) : part_(std::move(text)) {}
  // Throws IoError that starts with `where` and names the path and the reason;
  // next() does so, too.
  LineReader(const std::filesystem::path& path, const char* where);

  // The next line without its end (\n or \r\n), which stays until the next
  // call; false where there is none. A byte-order mark at the start is left
  // out.
  bool next(std::string_view& line);

 private:
  bool read_more();

  std::filesystem::path path_;
  std::string where_;
  std::optional<std::ifstream> file_;  // while there may be more
  std::string part_;
  std::size_t at_ = 0;  // what was given out
  bool begun_ = false;
};

}  // namespace regard::text
