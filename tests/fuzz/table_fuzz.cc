// SPDX-License-Identifier: Apache-2.0
// Any bytes are either refused with ParseError or a table whose columns are as
// long as it has rows, with no blank field. The first byte says what file the
// others are: t TSV, c CSV, others JSON Lines.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "regard/core/error.h"
#include "regard/text/table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const char* const name = data[0] == 't'   ? "a.tsv"
                           : data[0] == 'c' ? "a.csv"
                                            : "a.jsonl";
  try {
    const regard::text::Table table = regard::text::parse_table(
        std::string(reinterpret_cast<const char*>(data) + 1, size - 1), name,
        std::vector<std::string>{"text", "label"});
    for (const auto& column : table.columns) {
      if (static_cast<std::int64_t>(column.size()) != table.size()) {
        std::abort();
      }
      for (const std::string& field : column) {
        if (field.empty()) std::abort();
      }
    }
  } catch (const regard::ParseError&) {
  }
  return 0;
}
