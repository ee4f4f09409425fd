// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "regard/view/trace.h"

namespace regard::view {

// The viewer as viewer/ builds it: one HTML file that needs nothing else.
std::string_view viewer_page();

// The content security policy that the page carries.
std::string page_policy();

struct ExportOptions {
  // Which layers and heads have their weights in the file; empty: all.
  // Thumbnails, statistics and rollouts are always of all.
  std::vector<std::int64_t> layers = {};
  std::vector<std::int64_t> heads = {};
  std::size_t most_bytes = std::size_t{96} << 20;
  const Trace* beside = nullptr;  // of another text, compared with the first
};

// The page with a trace inside: it works without a network and asks for
// nothing. Throws InvalidArgument for a layer or head that no section has, for
// a trace beside it with other sections, layers or heads, and where the page
// would be larger than most_bytes.
std::string exported_page(const Trace& trace,
                          const ExportOptions& options = {});

// Writes it, whole or not at all. Throws IoError where the system refuses.
void export_page(const Trace& trace, const std::filesystem::path& path,
                 const ExportOptions& options = {});

}  // namespace regard::view
