// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace regard::cli {

// How far long work is, on standard error: on a terminal a line that overwrites
// itself, elsewhere a line every ten seconds. Work that is done within half a
// second shows nothing.
class Progress {
 public:
  // "indexing", "lines"
  Progress(std::string what, std::string unit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::int64_t done, std::int64_t all);

  // "indexing [#####     ]  50 %  512 of 1024 lines, 310 lines/s, 2 s left"
  static std::string text(const std::string& what, const std::string& unit,
                          std::int64_t done, std::int64_t all, double seconds);

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_, unit_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point start_, last_;
};

}  // namespace regard::cli
