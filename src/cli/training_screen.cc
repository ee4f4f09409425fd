// SPDX-License-Identifier: Apache-2.0
#include "cli/training_screen.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace regard::cli {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

extern "C" void request_stop(int signal) {
  stop_requested = signal;
  std::signal(signal, SIG_DFL);
}

bool is_terminal() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) != 0 && term != nullptr &&
         std::string(term) != "dumb";
}

}  // namespace

StopOnSignal::StopOnSignal() {
  stop_requested = 0;
  std::signal(SIGINT, request_stop);
  std::signal(SIGTERM, request_stop);
}
StopOnSignal::~StopOnSignal() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}
int StopOnSignal::signal() { return stop_requested; }

std::string duration_text(double seconds) {
  const auto s = static_cast<std::int64_t>(std::lround(std::max(0.0, seconds)));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s % 3600 / 60);
}

TrainingScreen::TrainingScreen(std::int64_t max_updates, const char* unit)
    : max_updates_(max_updates), unit_(unit), terminal_(is_terminal()) {}

void TrainingScreen::on_start(std::int64_t updates) {
  if (updates > 0) {
    std::fprintf(stderr, "resuming after update %lld\n",
                 static_cast<long long>(updates));
  }
  last_line_ = std::chrono::steady_clock::now();
}

std::string TrainingScreen::status(const train::UpdateReport& report) const {
  std::string text;
  if (max_updates_ > 0) {
    constexpr std::int64_t kWidth = 20;
    const std::int64_t done =
        std::min(kWidth, kWidth * report.update / max_updates_);
    text = fmt::format("[{:#<{}}{:.<{}}] update {}/{}", "", done, "",
                       kWidth - done, report.update, max_updates_);
  } else {
    text = fmt::format("epoch {}, update {}", report.epoch, report.update);
  }
  text += fmt::format("  loss {:.3f}{}  {:.0f} {}/s", loss_, valid_, tokens_,
                      unit_);
  if (report.bytes_sent > 0) {
    text += fmt::format("  {:.1f} MB/update sent, {:.0f} % waiting",
                        static_cast<double>(report.bytes_sent) / 1e6,
                        100 * report.seconds_waited / report.seconds);
  }
  if (max_updates_ > report.update) {
    const auto left = static_cast<double>(max_updates_ - report.update);
    text += fmt::format("  {} left", duration_text(left * seconds_));
  }
  return text;
}

void TrainingScreen::on_update(const train::UpdateReport& report) {
  // A mean over about the last fifty.
  const double weight =
      1.0 / static_cast<double>(std::min<std::int64_t>(++seen_, 50));
  const double speed =
      static_cast<double>(report.tokens) / std::max(report.seconds, 1e-9);
  loss_ += weight * (report.likelihood - loss_);
  tokens_ += weight * (speed - tokens_);
  seconds_ += weight * (report.seconds - seconds_);
  const auto now = std::chrono::steady_clock::now();
  const auto gap = terminal_ ? std::chrono::milliseconds(200)
                             : std::chrono::milliseconds(60000);
  if (now - last_line_ < gap && seen_ > 1) return;
  last_line_ = now;
  std::fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n",
               status(report).c_str());
  std::fflush(stderr);
}

void TrainingScreen::on_milestone(const train::MilestoneReport& report) {
  if (!std::isfinite(report.likelihood)) return;
  valid_ = fmt::format(" (held out {:.3f})", report.likelihood);
  clear();
  const std::string line = fmt::format(
      "update {}, epoch {}: loss {:.4f}, held out {:.4f}, perplexity {:.2f}{}",
      report.update, report.epoch, loss_, report.likelihood,
      std::exp(report.likelihood), report.best ? ", the best so far" : "");
  std::fprintf(stderr, "%s\n", line.c_str());
}

void TrainingScreen::clear() {
  if (terminal_) std::fputs("\r\033[K", stderr);
}

std::string draw_curve(const std::vector<std::pair<double, double>>& training,
                       const std::vector<std::pair<double, double>>& validation,
                       const Screen& screen) {
  if (training.size() < 2) return {};
  constexpr int kRows = 12;
  constexpr int kAxis = 8;  // cells of the numbers at the left
  const int columns = std::clamp(screen.columns - kAxis - 1, 10, 100);
  double low = training.front().second;
  double high = low;
  for (const auto* points : {&training, &validation}) {
    for (const auto& [update, loss] : *points) {
      low = std::min(low, loss);
      high = std::max(high, loss);
    }
  }
  const double last = std::max(training.back().first, 1.0);
  const double span = std::max(high - low, 1e-9);
  std::vector<std::string> rows(
      kRows, std::string(static_cast<std::size_t>(columns), ' '));
  // Each column shows the mean of its updates.
  const auto plot = [&](const std::vector<std::pair<double, double>>& points,
                        char mark) {
    std::vector<double> sum(static_cast<std::size_t>(columns));
    std::vector<int> count(static_cast<std::size_t>(columns));
    for (const auto& [update, loss] : points) {
      const auto column = static_cast<std::size_t>(
          std::min(columns - 1, static_cast<int>(update / last * columns)));
      sum[column] += loss;
      ++count[column];
    }
    for (std::size_t c = 0; c < sum.size(); ++c) {
      if (count[c] == 0) continue;
      const double height = (sum[c] / count[c] - low) / span;
      const auto row =
          static_cast<std::size_t>(std::lround((1 - height) * (kRows - 1)));
      rows[row][c] = mark;
    }
  };
  plot(training, '*');
  plot(validation, 'o');
  std::string text;
  for (int r = 0; r < kRows; ++r) {
    const double value = high - span * r / (kRows - 1);
    text +=
        fmt::format("{:7.2f} |{}\n", value, rows[static_cast<std::size_t>(r)]);
  }
  text += fmt::format("{:>7} +{:-<{}}\n", "", "", columns);
  text += fmt::format("{:>9}{:<{}}{:.0f}\n", "", "0", columns - 6, last);
  text += fmt::format("{:>9}loss over updates: * training{}\n", "",
                      validation.empty() ? "" : ", o held out");
  return text;
}

}  // namespace regard::cli
