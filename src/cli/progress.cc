// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "cli/training_screen.h"

namespace regard::cli {

Progress::Progress(std::string what, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      last_(start_) {}

Progress::~Progress() {
  if (shown_ && terminal_) std::fputs("\r\x1b[K", stderr);
}

std::string Progress::text(const std::string& what, const std::string& unit,
                           std::int64_t done, std::int64_t all,
                           double seconds) {
  constexpr std::int64_t kCells = 20;
  const std::int64_t share = all > 0 ? done * kCells / all : kCells;
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  std::string text =
      fmt::format("{} [{:<{}}] {:3} %  {} of {} {}", what,
                  std::string(static_cast<std::size_t>(share), '#'), kCells,
                  all > 0 ? done * 100 / all : 100, done, all, unit);
  if (rate > 0) {
    text += fmt::format(", {:.0f} {}/s, {} left", rate, unit,
                        duration_text(static_cast<double>(all - done) / rate));
  }
  return text;
}

void Progress::update(std::int64_t done, std::int64_t all) {
  using std::chrono::milliseconds;
  const Clock::time_point now = Clock::now();
  const auto wait = !terminal_ ? milliseconds(10000)
                    : shown_   ? milliseconds(100)
                               : milliseconds(500);
  if (now - last_ < wait || done == all) return;
  last_ = now;
  shown_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string line = text(what_, unit_, done, all, seconds);
  std::fprintf(stderr, terminal_ ? "\r\x1b[K%s" : "regard: %s\n", line.c_str());
  std::fflush(stderr);
}

}  // namespace regard::cli
