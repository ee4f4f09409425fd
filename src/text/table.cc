// SPDX-License-Identifier: Apache-2.0
#include "regard/text/table.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "io/quote.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "regard/text/lines.h"
#include "regard/text/utf8.h"
#include "text/line_reader.h"

namespace regard::text {
namespace {

constexpr const char* kWhere = "read_table";

enum class Kind { kTsv, kCsv, kJsonLines, kOther };

Kind kind_of(const std::filesystem::path& path) {
  std::string end = path.extension().string();
  std::transform(end.begin(), end.end(), end.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (end == ".tsv") return Kind::kTsv;
  if (end == ".csv") return Kind::kCsv;
  if (end == ".jsonl" || end == ".ndjson") return Kind::kJsonLines;
  return Kind::kOther;
}

class Reader {
 public:
  Reader(LineReader lines, const std::string& name,
         std::span<const std::string> columns, const RowVisitor& visit)
      : name_(name), wanted_(columns), lines_(std::move(lines)), visit_(visit) {
    row_.resize(columns.size());
  }

  void read_without_header(Kind kind) {
    while (next_line()) {
      std::vector<std::string> row =
          row_.empty() ? first_fields(kind) : fields(kind);
      if (row_.empty()) row_.resize(row.size());
      if (row.size() != row_.size()) {
        fail("there must be ", row_.size(),
             " fields, as in the first line; got ", row.size());
      }
      for (std::size_t c = 0; c < row.size(); ++c) {
        add(c, "field " + std::to_string(c + 1), std::move(row[c]));
      }
      visit_(row_, line_);
    }
  }

  void read(Kind kind) {
    if (kind == Kind::kJsonLines) {
      while (next_line()) read_json();
    } else {
      read_header(kind);
      while (next_line()) read_fields(kind);
    }
  }

  bool has(Kind kind, const std::string& column) {
    if (!next_line()) return false;
    if (kind == Kind::kJsonLines) {
      return Json::parse_or_null(current_).contains(column);
    }
    const std::vector<std::string> names = first_fields(kind);
    return std::find(names.begin(), names.end(), column) != names.end();
  }

 private:
  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw_parse_error(kWhere, "'", name_, "', line ", line_, ": ", parts...);
  }

  // The next line, blank or not; `line` stays until the next call.
  bool take_line(std::string_view& line) {
    if (!lines_.next(line)) return false;
    ++lines_read_;
    constexpr std::string_view kGzip = "\x1F\x8B";
    const std::int64_t row_begins = std::exchange(line_, lines_read_);
    if (lines_read_ == 1 && line.starts_with(kGzip)) {
      fail("the file is compressed (gzip); unpack it first");
    }
    if (find_invalid_utf8(line) != std::string::npos) {
      fail("the text must be UTF-8; it is not");
    }
    line_ = row_begins;
    return true;
  }

  // The next line that is not blank.
  bool next_line() {
    while (take_line(current_)) {
      line_ = lines_read_;
      if (!is_blank(current_)) return true;
    }
    return false;
  }

  std::vector<std::string> fields(Kind kind) {
    if (kind == Kind::kOther) return blank_fields();
    return kind == Kind::kTsv ? tab_fields() : comma_fields();
  }

  // With \r alone for the ends of lines, the whole file is the first of them.
  std::vector<std::string> first_fields(Kind kind) {
    std::vector<std::string> first = fields(kind);
    for (const std::string& field : first) {
      if (field.find('\r') != std::string::npos) {
        fail("lines must end with \\n or \\r\\n; here they end with \\r alone");
      }
    }
    return first;
  }

  std::vector<std::string> blank_fields() const {
    constexpr std::string_view kBlanks = " \t";
    std::vector<std::string> fields;
    std::size_t begin = current_.find_first_not_of(kBlanks);
    while (begin != std::string_view::npos) {
      const std::size_t end =
          std::min(current_.find_first_of(kBlanks, begin), current_.size());
      fields.emplace_back(current_.substr(begin, end - begin));
      begin = current_.find_first_not_of(kBlanks, end);
    }
    return fields;
  }

  std::vector<std::string> tab_fields() const {
    std::vector<std::string> fields;
    std::string_view line = current_;
    for (;;) {
      const std::size_t tab = line.find('\t');
      fields.emplace_back(line.substr(0, tab));
      if (tab == std::string_view::npos) return fields;
      line.remove_prefix(tab + 1);
    }
  }

  // A quoted field may go on in the lines that follow.
  std::vector<std::string> comma_fields() {
    std::vector<std::string> fields;
    std::string_view line = current_;
    for (;;) {
      std::string field;
      if (line.starts_with('"')) {
        line.remove_prefix(1);
        for (;;) {
          const std::size_t quote = line.find('"');
          field += line.substr(0, quote);
          if (quote == std::string_view::npos) {
            if (!take_line(line)) fail("a quoted field must have an end");
            field += '\n';
            continue;
          }
          line.remove_prefix(quote + 1);
          if (!line.starts_with('"')) break;
          field += '"';
          line.remove_prefix(1);
        }
        if (!line.empty() && line.front() != ',') {
          fail("a comma must follow a quoted field; got ", io::in_quotes(line));
        }
      } else {
        const std::size_t comma = std::min(line.find(','), line.size());
        field = line.substr(0, comma);
        line.remove_prefix(comma);
        if (field.find('"') != std::string::npos) {
          fail(
              "a field with a quote must be in quotes, and the quote twice; "
              "got ",
              io::in_quotes(field));
        }
      }
      fields.push_back(std::move(field));
      if (line.empty()) return fields;
      line.remove_prefix(1);
    }
  }

  void read_header(Kind kind) {
    if (!next_line()) {
      line_ = 1;
      fail("there must be a header that names the columns; the file is blank");
    }
    header_ = first_fields(kind);
    for (const std::string& column : wanted_) {
      const auto found = std::find(header_.begin(), header_.end(), column);
      if (found == header_.end()) {
        std::string names;
        for (const std::string& name : header_) {
          names += (names.empty() ? "" : ", ") + io::in_quotes(name);
        }
        fail("the header must name the column '", column, "'; it names ",
             names);
      }
      if (std::find(found + 1, header_.end(), column) != header_.end()) {
        fail("the header must name the column '", column, "' once");
      }
      places_.push_back(static_cast<std::size_t>(found - header_.begin()));
    }
  }

  void read_fields(Kind kind) {
    const std::vector<std::string> row = fields(kind);
    if (row.size() != header_.size()) {
      fail("there must be ", header_.size(), " fields, as in the header; got ",
           row.size());
    }
    for (std::size_t c = 0; c < wanted_.size(); ++c) {
      add(c, wanted_[c], row[places_[c]]);
    }
    visit_(row_, line_);
  }

  void read_json() {
    const Json row = Json::parse_or_null(current_);
    if (!row.is_object()) {
      fail("there must be one JSON object; got ", io::in_quotes(current_));
    }
    for (std::size_t c = 0; c < wanted_.size(); ++c) {
      const Json* const found = row.find(wanted_[c]);
      if (found == nullptr) {
        fail("the object must have the field '", wanted_[c], "'");
      }
      if (!found->is_string() && !found->is_integer()) {
        fail("the field '", wanted_[c], "' must be a string or an integer; ",
             "it is of the type ", found->type_name());
      }
      add(c, wanted_[c],
          found->is_string() ? found->get<std::string>() : found->dump());
    }
    visit_(row_, line_);
  }

  void add(std::size_t column, const std::string& name, std::string field) {
    if (field.find_first_not_of(" \t\r\n\v\f") == std::string::npos) {
      fail("the field '", name, "' must not be blank");
    }
    row_[column] = std::move(field);
  }

  std::string name_;
  std::span<const std::string> wanted_;
  LineReader lines_;
  const RowVisitor& visit_;
  std::string_view current_;
  std::int64_t lines_read_ = 0;
  std::int64_t line_ = 0;  // where the row begins
  std::vector<std::string> header_;
  std::vector<std::size_t> places_;
  std::vector<std::string> row_;
};

Kind named_kind(const std::string& name) {
  const Kind kind = kind_of(name);
  if (kind == Kind::kOther) {
    throw_parse_error(kWhere, "the name of a table must end in .tsv, .csv, ",
                      ".jsonl or .ndjson; it is '", name, "'");
  }
  return kind;
}

// Keeps the rows that it is given.
RowVisitor keep_in(Table& table) {
  return [&table](std::span<std::string> row, std::int64_t line) {
    table.columns.resize(row.size());
    for (std::size_t c = 0; c < row.size(); ++c) {
      table.columns[c].push_back(std::move(row[c]));
    }
    table.lines.push_back(line);
  };
}

}  // namespace

bool is_table(const std::filesystem::path& path) {
  return kind_of(path) != Kind::kOther;
}

Table parse_table(std::string bytes, const std::string& name,
                  std::span<const std::string> columns) {
  Table table;
  table.columns.resize(columns.size());
  const Kind kind = named_kind(name);
  Reader(LineReader(std::move(bytes)), name, columns, keep_in(table))
      .read(kind);
  return table;
}

void visit_table(const std::filesystem::path& path,
                 std::span<const std::string> columns,
                 const RowVisitor& visit) {
  // A name that is none is refused before anything is read.
  const Kind kind = named_kind(path.string());
  Reader(LineReader(path, kWhere), path.string(), columns, visit).read(kind);
}

Table read_table(const std::filesystem::path& path,
                 std::span<const std::string> columns) {
  Table table;
  table.columns.resize(columns.size());
  visit_table(path, columns, keep_in(table));
  return table;
}

bool has_column(const std::filesystem::path& path, const std::string& column) {
  if (!is_table(path)) return false;
  return Reader(LineReader(path, kWhere), path.string(), {}, {})
      .has(kind_of(path), column);
}

void visit_table_without_header(const std::filesystem::path& path,
                                const RowVisitor& visit) {
  const Kind kind = kind_of(path.string());
  if (kind == Kind::kJsonLines) {
    throw_parse_error(kWhere, "the fields of JSON Lines have names; '",
                      path.string(), "' is read as a table with a header is");
  }
  Reader(LineReader(path, kWhere), path.string(), {}, visit)
      .read_without_header(kind);
}

Table read_table_without_header(const std::filesystem::path& path) {
  Table table;
  visit_table_without_header(path, keep_in(table));
  return table;
}

}  // namespace regard::text
