// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cli/screen.h"
#include "regard/train/training.h"

namespace regard::cli {

// Ctrl-C and SIGTERM while it lives: the first asks for a stop, a second one
// ends the program as ever.
class StopOnSignal {
 public:
  StopOnSignal();
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
  static int signal();  // that came, or 0
};

// Shows a training on standard error: on a terminal a line that overwrites
// itself, elsewhere a line for each milestone and every minute.
class TrainingScreen : public train::Observer {
 public:
  // `unit` is what a loss is counted in: "tokens", "examples".
  TrainingScreen(std::int64_t max_updates, const char* unit);

  void on_start(std::int64_t updates) override;
  void on_update(const train::UpdateReport& report) override;
  void on_milestone(const train::MilestoneReport& report) override;
  bool wants_to_stop() override { return StopOnSignal::signal() != 0; }

  void clear();  // the line that overwrites itself

 private:
  std::string status(const train::UpdateReport& report) const;

  std::int64_t max_updates_;
  const char* unit_;
  bool terminal_;
  double loss_ = 0;        // running means
  double tokens_ = 0;      // a second
  double seconds_ = 0;     // an update
  std::int64_t seen_ = 0;  // updates of this start
  std::string valid_;
  std::chrono::steady_clock::time_point last_line_;
};

// "2 h 05 min", "3 min 20 s", "12 s"
std::string duration_text(double seconds);

// Losses over updates, drawn with characters: training and, where there are
// any, validation. Empty without two points.
std::string draw_curve(const std::vector<std::pair<double, double>>& training,
                       const std::vector<std::pair<double, double>>& validation,
                       const Screen& screen);

}  // namespace regard::cli
