// SPDX-License-Identifier: Apache-2.0
#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "regard/core/error.h"

namespace regard::io {
namespace fs = std::filesystem;

namespace {

// Runs a system call again where a signal broke it off.
template <typename Call>
auto retried(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

constexpr const char* kOpenFiles = "/proc/self/fd/";

// A file without a name: killed, the process leaves nothing behind. -1 where
// the file system has none, or nobody could give it a name later.
int open_unnamed(const fs::path& folder) {
  if (::access(kOpenFiles, X_OK) != 0) return -1;
  return retried([&folder] {
    return ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  });
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path, const char* where)
    : path_(path), target_(path), where_(where) {
  if (path.empty()) fail(ENOENT);
  // The system follows the links, because those to pipes lead to no name.
  struct stat status = {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) fail(EISDIR);
  if (exists && !S_ISREG(status.st_mode)) {
    throw_io_error(where, "cannot write '", path.string(),
                   "': it is not a regular file");
  }
  follow_links();
  create();
  // The new file may be read by whom the old one could be. Where the system
  // does not let us say so, the default stays.
  if (exists) (void)::fchmod(file_, status.st_mode & 07777);
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) ::close(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

// By hand, because the last link may lead to a file that is not there yet.
void AtomicFile::follow_links() {
  constexpr int kMostLinks = 40;  // as the kernel has it
  std::error_code error;
  for (int i = 0; fs::is_symlink(fs::symlink_status(target_, error)); ++i) {
    if (i == kMostLinks) fail(ELOOP);
    const fs::path next = fs::read_symlink(target_, error);
    if (error) fail(error.value());
    target_ = folder_of(target_) / next;  // `next` alone where it is absolute
  }
}

void AtomicFile::create() {
  file_ = open_unnamed(folder_of(target_));
  if (file_ >= 0) return;
  take_new_name([this](const char* name) {
    file_ = ::open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return file_;
  });
}

// A rename replaces an old file, and needs a name to begin with.
void AtomicFile::give_name() {
  if (!temporary_.empty()) return;
  const std::string file = kOpenFiles + std::to_string(file_);
  take_new_name([&file](const char* name) {
    return ::linkat(AT_FDCWD, file.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW);
  });
}

// A name that no other writer of this machine uses at the moment. Short, so
// that it fits wherever the file's own name does.
void AtomicFile::take_new_name(const std::function<int(const char*)>& make) {
  static std::atomic<std::uint64_t> counter{0};
  for (;;) {
    fs::path name =
        folder_of(target_) / (".regard-" + std::to_string(::getpid()) + "-" +
                              std::to_string(counter.fetch_add(1)) + ".tmp");
    if (retried([&] { return make(name.c_str()); }) >= 0) {
      temporary_ = std::move(name);
      return;
    }
    if (errno != EEXIST) fail(errno);
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  // One call moves at most 2 GiB; a smaller step keeps signals answered.
  constexpr std::size_t kStep = std::size_t{1} << 28;
  while (!bytes.empty()) {
    const std::size_t step = std::min(bytes.size(), kStep);
    const ssize_t written = retried(
        [this, bytes, step] { return ::write(file_, bytes.data(), step); });
    if (written < 0) fail(errno);
    // A write of nothing would go on for ever.
    if (written == 0) fail(EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (retried([this] { return ::fsync(file_); }) != 0) fail(errno);
  give_name();
  // Some file systems report a full disk only here. The descriptor is gone
  // even after an error.
  if (::close(std::exchange(file_, -1)) != 0) fail(errno);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail(errno);
  temporary_.clear();
  sync_folder();
}

// The new name is part of the folder, which goes to the disk on its own.
void AtomicFile::sync_folder() {
  const fs::path folder = folder_of(target_);
  const int descriptor = retried([&folder] {
    return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  });
  // A folder that may be written but not read cannot be synced.
  if (descriptor < 0 && errno == EACCES) return;
  if (descriptor < 0) fail(errno);
  const int result = retried([descriptor] { return ::fsync(descriptor); });
  const int error = errno;
  ::close(descriptor);
  // Not every file system has this call for folders.
  if (result != 0 && error != EINVAL) fail(error);
}

void AtomicFile::fail(int error) const {
  throw_io_error(where_.c_str(), "cannot write '", path_.string(),
                 "': ", std::generic_category().message(error));
}

}  // namespace regard::io
