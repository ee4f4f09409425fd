// SPDX-License-Identifier: Apache-2.0
#include "text/line_reader.h"

#include <cerrno>
#include <system_error>

#include "regard/core/error.h"

namespace regard::text {
namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail(const fs::path& path, const std::string& where,
                       const std::string& reason) {
  throw_io_error(where.c_str(), "cannot read '", path.string(), "': ", reason);
}

std::string reason_of(int error) {
  return std::generic_category().message(error == 0 ? EIO : error);
}

}  // namespace

LineReader::LineReader(const fs::path& path, const char* where)
    : path_(path), where_(where) {
  std::error_code error;
  if (fs::is_directory(path, error)) fail(path, where_, "it is a folder");
  errno = 0;
  file_.emplace(path, std::ios::binary);
  if (!*file_) fail(path, where_, reason_of(errno));
}

bool LineReader::read_more() {
  if (!file_) return false;
  constexpr std::size_t kPart = std::size_t{1} << 20;
  part_.erase(0, at_);
  at_ = 0;
  const std::size_t kept = part_.size();
  part_.resize(kept + kPart);
  errno = 0;
  file_->read(part_.data() + kept, kPart);
  part_.resize(kept + static_cast<std::size_t>(file_->gcount()));
  if (file_->bad()) fail(path_, where_, reason_of(errno));
  if (!*file_) file_.reset();
  return true;
}

bool LineReader::next(std::string_view& line) {
  std::size_t searched = at_;
  std::size_t end = part_.find('\n', searched);
  while (end == std::string::npos) {
    searched = part_.size() - at_;  // at_ is 0 from here on
    if (!read_more()) break;
    end = part_.find('\n', searched);
  }
  if (!begun_) {
    constexpr std::string_view kMark = "\xEF\xBB\xBF";
    begun_ = true;
    if (part_.starts_with(kMark)) at_ = kMark.size();
  }
  if (at_ == part_.size()) return false;
  const bool last = end == std::string::npos;
  const std::size_t stop = last ? part_.size() : end;
  line = std::string_view(part_).substr(at_, stop - at_);
  at_ = last ? stop : stop + 1;
  if (line.ends_with('\r')) line.remove_suffix(1);
  return true;
}

}  // namespace regard::text
