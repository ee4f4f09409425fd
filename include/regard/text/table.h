// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace regard::text {

// Some columns of a file of examples.
struct Table {
  std::vector<std::vector<std::string>> columns;  // in the order asked for
  std::vector<std::int64_t> lines;                // where each row begins

  std::int64_t size() const { return static_cast<std::int64_t>(lines.size()); }
};

// Reads the named columns of a file in UTF-8; others are left out. The end of
// the file's name says what it is:
//
//   .tsv            a header, then fields with tabs between them, taken as they
//                   are
//   .csv            a header, then fields with commas between them, in double
//                   quotes where they hold a comma, a quote ("") or a line end
//   .jsonl, .ndjson one JSON object per line; a field is a string or an integer
//
// Blank lines are left out. Throws IoError where the file cannot be read and
// ParseError, with the number of the line, for one that does not have the
// columns, has more or fewer fields than the header, or is not UTF-8. An empty
// field is one of these: every field that is asked for must say something.
Table read_table(const std::filesystem::path& path,
                 std::span<const std::string> columns);

// The same for the bytes of a file; `name` says what they are.
Table parse_table(std::string bytes, const std::string& name,
                  std::span<const std::string> columns);

// Does the header, or the first JSON object, have such a column? Throws as
// read_table() does.
bool has_column(const std::filesystem::path& path, const std::string& column);

// A file without a header: all columns, as many as its first line has fields.
// Fields of a .tsv have tabs between them, those of a .csv commas, those of any
// other file blanks or tabs, one or more. Throws as read_table() does.
Table read_table_without_header(const std::filesystem::path& path);

// The same row by row, for files that are larger than memory: the fields of
// each row in the order asked for, which the visitor may move away, and the
// line where it begins. Rows before one that is wrong were visited.
using RowVisitor =
    std::function<void(std::span<std::string> row, std::int64_t line)>;
void visit_table(const std::filesystem::path& path,
                 std::span<const std::string> columns, const RowVisitor& visit);
void visit_table_without_header(const std::filesystem::path& path,
                                const RowVisitor& visit);

// Is it one of the names that read_table() knows?
bool is_table(const std::filesystem::path& path);

}  // namespace regard::text
