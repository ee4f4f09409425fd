// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace regard::text {

// The lines of a text in UTF-8, without their ends (\n or \r\n) and without a
// byte-order mark at the start. Throws IoError where the file cannot be read;
// ParseError, with the number of the line, where it is not UTF-8.
std::vector<std::string> read_lines(const std::filesystem::path& path);
// The same for a stream; `name` stands in the texts of errors.
std::vector<std::string> read_lines(std::istream& in, const std::string& name);

// Sentences and their translations: as many of the one as of the other.
struct Pairs {
  std::vector<std::string> sources;
  std::vector<std::string> targets;
};

// Two files, line by line. Throws ParseError where one has more lines.
Pairs read_pairs(const std::filesystem::path& sources,
                 const std::filesystem::path& targets);

// One file: source, tab, target. What follows a second tab is left out, as
// attributions are. Throws ParseError for a line without a tab.
Pairs read_tsv(const std::filesystem::path& path);

// Nothing but blanks?
bool is_blank(std::string_view line);

}  // namespace regard::text
