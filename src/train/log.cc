// SPDX-License-Identifier: Apache-2.0
#include "regard/train/log.h"

#include <cerrno>
#include <cmath>
#include <iterator>
#include <limits>
#include <system_error>

#include "io/atomic_file.h"
#include "json/json.h"
#include "regard/core/error.h"

namespace regard::train {
namespace {

// JSON has no NaN.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

double number_of(const Json& line, const char* key) {
  const Json& value = line.at(key);
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN()
                         : value.get<double>();
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) {
    throw_io_error("read_log", "cannot read '", path.string(), "'");
  }
  return text;
}

// Those that are whole.
std::vector<std::string> lines_of(const std::filesystem::path& path) {
  const std::string text = text_of(path);
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos;
       end = text.find('\n', begin)) {
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Adds what a line tells, and returns its update. Throws JsonError for one that
// is not of a log; then nothing is added.
std::int64_t add_line(const std::string& text, RunHistory& history) {
  const Json line = Json::parse(text);
  if (line.contains("loss")) {
    UpdateReport report;
    report.update = line.at("update").get<std::int64_t>();
    report.epoch = line.at("epoch").get<std::int64_t>();
    report.loss = number_of(line, "loss");
    report.likelihood = number_of(line, "nll");
    report.gradient_norm = number_of(line, "gradient_norm");
    report.rate = number_of(line, "rate");
    report.tokens = line.at("tokens").get<std::int64_t>();
    report.seconds = number_of(line, "seconds");
    history.updates.push_back(report);
    return report.update;
  }
  MilestoneReport report;
  report.update = line.at("update").get<std::int64_t>();
  report.epoch = line.at("epoch").get<std::int64_t>();
  report.likelihood = number_of(line, "valid_nll");
  report.best = line.at("best").get<bool>();
  history.milestones.push_back(report);
  return report.update;
}

// No part of a checkpoint, so what a power failure has torn costs its line.
bool is_kept(const std::string& line, std::int64_t keep_updates) {
  try {
    RunHistory unused;
    return add_line(line, unused) <= keep_updates;
  } catch (const JsonError&) {
    return false;
  }
}

}  // namespace

RunHistory read_log(const std::filesystem::path& path) {
  RunHistory history;
  std::int64_t count = 0;
  for (const std::string& line : lines_of(path)) {
    ++count;
    try {
      add_line(line, history);
    } catch (const JsonError&) {
      throw_parse_error("read_log", "line ", count, " of '", path.string(),
                        "' is not one of a training's log");
    }
  }
  return history;
}

Log::Log(const std::filesystem::path& path, std::int64_t keep_updates)
    : path_(path) {
  std::string kept;
  if (std::filesystem::exists(path) && keep_updates > 0) {
    for (const std::string& line : lines_of(path)) {
      if (is_kept(line, keep_updates)) kept += line + '\n';
    }
  }
  io::AtomicFile file(path, "Log");
  file.write(kept);
  file.commit();
  out_.open(path, std::ios::binary | std::ios::app);
  if (!out_) throw_io_error("Log", "cannot write '", path.string(), "'");
}

void Log::write(const UpdateReport& report) {
  append(Json{{"update", report.update},
              {"epoch", report.epoch},
              {"loss", number(report.loss)},
              {"nll", number(report.likelihood)},
              {"gradient_norm", number(report.gradient_norm)},
              {"rate", number(report.rate)},
              {"tokens", report.tokens},
              {"seconds", number(report.seconds)}}
             .dump());
}

void Log::write(const MilestoneReport& report) {
  append(Json{{"update", report.update},
              {"epoch", report.epoch},
              {"valid_nll", number(report.likelihood)},
              {"best", report.best}}
             .dump());
}

void Log::append(const std::string& line) {
  errno = 0;
  out_ << line << '\n' << std::flush;
  if (!out_) {
    throw_io_error("Log", "cannot write '", path_.string(), "': ",
                   std::generic_category().message(errno == 0 ? EIO : errno));
  }
}

}  // namespace regard::train
