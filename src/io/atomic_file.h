// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace regard::io {

// A file that appears whole or not at all. It is written without a name in the
// same folder, or under another one where the file system wants names; commit()
// brings it to the disk and gives it its own name, which replaces an old file
// in one step. Without commit(), the destructor removes what was written, and
// an old file is as it was. So it is where the process is killed; only a file
// under another name (.regard-PID-N.tmp) then stays.
//
// Every failure throws IoError that starts with `where` and names the path and
// the reason. A symbolic link is followed; a folder or a device is refused.
class AtomicFile {
 public:
  AtomicFile(const std::filesystem::path& path, const char* where);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) {
    write(std::as_bytes(std::span(text.data(), text.size())));
  }
  void commit();

 private:
  void follow_links();
  void create();
  void give_name();
  void take_new_name(const std::function<int(const char*)>& make);
  void sync_folder();
  [[noreturn]] void fail(int error) const;

  std::filesystem::path path_;       // as the caller named it
  std::filesystem::path target_;     // after symbolic links
  std::filesystem::path temporary_;  // empty: it has no name
  std::string where_;
  int file_ = -1;
};

}  // namespace regard::io
