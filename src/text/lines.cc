// SPDX-License-Identifier: Apache-2.0
#include "regard/text/lines.h"

#include <algorithm>
#include <array>
#include <istream>
#include <utility>

#include "io/read_file.h"
#include "regard/core/error.h"
#include "regard/text/utf8.h"

namespace regard::text {
namespace {

constexpr const char* kMark = "\xEF\xBB\xBF";  // the byte-order mark
constexpr const char* kGzip = "\x1F\x8B";

std::vector<std::string> lines_of(std::string_view text,
                                  const std::string& name) {
  if (text.starts_with(kGzip)) {
    throw_parse_error("read_lines", "'", name,
                      "' is compressed (gzip); unpack it first");
  }
  if (text.starts_with(kMark)) text.remove_prefix(3);
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t bad = find_invalid_utf8(line);
    if (bad != std::string_view::npos) {
      throw_parse_error("read_lines", "'", name, "' must be UTF-8; line ",
                        lines.size() + 1, " is not, at its byte ", bad + 1);
    }
    lines.emplace_back(line);
  }
  return lines;
}

}  // namespace

std::vector<std::string> read_lines(std::istream& in, const std::string& name) {
  std::string text;
  std::array<char, 1 << 16> part;
  // Not through the buffer's iterators: a read that fails would not set bad().
  while (in) {
    in.read(part.data(), static_cast<std::streamsize>(part.size()));
    text.append(part.data(), static_cast<std::size_t>(in.gcount()));
  }
  if (in.bad()) throw_io_error("read_lines", "cannot read '", name, "'");
  return lines_of(text, name);
}

std::vector<std::string> read_lines(const std::filesystem::path& path) {
  return lines_of(io::read_file(path, "read_lines"), path.string());
}

Pairs read_pairs(const std::filesystem::path& sources,
                 const std::filesystem::path& targets) {
  Pairs pairs{read_lines(sources), read_lines(targets)};
  if (pairs.sources.size() != pairs.targets.size()) {
    throw_parse_error("read_pairs", "line n of one file is the translation of ",
                      "line n of the other; '", sources.string(), "' has ",
                      pairs.sources.size(), " lines, '", targets.string(),
                      "' has ", pairs.targets.size());
  }
  return pairs;
}

Pairs read_tsv(const std::filesystem::path& path) {
  Pairs pairs;
  for (const std::string& line : read_lines(path)) {
    const std::size_t first = line.find('\t');
    if (first == std::string::npos) {
      throw_parse_error("read_tsv", "each line must be source, tab, target; '",
                        path.string(), "' has no tab in line ",
                        pairs.sources.size() + 1);
    }
    const std::size_t second =
        std::min(line.find('\t', first + 1), line.size());
    pairs.sources.push_back(line.substr(0, first));
    pairs.targets.push_back(line.substr(first + 1, second - first - 1));
  }
  return pairs;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\v\f") == std::string_view::npos;
}

}  // namespace regard::text
