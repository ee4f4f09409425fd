// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "regard/train/training.h"

namespace regard::train {

// What a run's log.jsonl tells.
struct RunHistory {
  std::vector<UpdateReport> updates;
  std::vector<MilestoneReport> milestones;
};

// Throws IoError where the file cannot be read, ParseError for a line that is
// not one of a log. A last line that is cut off, as a crash leaves it, is left
// out.
RunHistory read_log(const std::filesystem::path& path);

// Appends to a log. Every line is handed to the system before the call returns.
class Log {
 public:
  // Keeps the lines of an old log up to an update: what a crash had logged
  // beyond its last checkpoint will be done again. Lines that are damaged are
  // left out.
  Log(const std::filesystem::path& path, std::int64_t keep_updates);

  void write(const UpdateReport& report);
  void write(const MilestoneReport& report);

 private:
  void append(const std::string& line);

  std::filesystem::path path_;
  std::ofstream out_;
};

}  // namespace regard::train
