// SPDX-License-Identifier: Apache-2.0
// A folder of files for targets whose readers take paths. It goes away with the
// program.
#pragma once

#include <stdlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

namespace regard::fuzz {

class Folder {
 public:
  Folder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "regard-fuzz-XXXXXX")
            .string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  void clear() const {
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      std::filesystem::remove_all(entry.path());
    }
  }

  // The file in this folder, or in a folder of it.
  std::filesystem::path write(std::string_view name,
                              std::string_view bytes) const {
    const std::filesystem::path path = path_ / name;
    if (path.parent_path() != path_) {
      std::filesystem::create_directory(path.parent_path());
    }
    std::ofstream(path, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path;
  }

  // Many files in one text: "%%%% NAME\n" stands before each, and a line feed
  // before all but the first. False for names that would leave the folder.
  bool fill(std::string_view bytes) const {
    constexpr std::string_view kMark = "%%%% ";
    clear();
    if (!bytes.starts_with(kMark)) return false;
    bytes.remove_prefix(kMark.size());
    for (std::size_t next = 0; next != std::string_view::npos;) {
      const std::size_t line = bytes.find('\n');
      if (line == std::string_view::npos) return false;
      const std::string_view name = bytes.substr(0, line);
      if (!is_name(name)) return false;
      next = bytes.find("\n%%%% ", line);
      const std::size_t end = std::min(next, bytes.size());
      write(name, bytes.substr(line + 1, std::max(end, line + 1) - line - 1));
      if (next != std::string_view::npos) {
        bytes.remove_prefix(next + 1 + kMark.size());
      }
    }
    return true;
  }

 private:
  static bool is_name(std::string_view name) {
    const auto plain = [](char c) {
      return c == '_' || c == '.' || c == '-' || c == '/' ||
             (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
             (c >= 'A' && c <= 'Z');
    };
    return !name.empty() && name.size() < 64 && name.front() != '/' &&
           name.back() != '/' && name.front() != '.' &&
           name.find("..") == std::string_view::npos &&
           name.find("/.") == std::string_view::npos &&
           std::count(name.begin(), name.end(), '/') < 2 &&
           name.find("//") == std::string_view::npos &&
           std::all_of(name.begin(), name.end(), plain);
  }

  std::filesystem::path path_;
};

}  // namespace regard::fuzz
