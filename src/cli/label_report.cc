// SPDX-License-Identifier: Apache-2.0
#include "cli/label_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/screen.h"
#include "cli/text.h"
#include "json/json.h"

namespace regard::cli {
namespace {

using Labels = std::span<const tasks::LabelProbability>;

Labels shown(Labels found, std::int64_t top) {
  return found.first(std::min(found.size(), static_cast<std::size_t>(top)));
}

}  // namespace

std::string line_of(Labels found, std::span<const std::string> labels,
                    std::int64_t top) {
  std::string line;
  for (const tasks::LabelProbability& one : shown(found, top)) {
    line += fmt::format("{}{}\t{:.4f}", line.empty() ? "" : "\t",
                        for_output(labels[static_cast<std::size_t>(one.label)]),
                        one.probability);
  }
  return line + "\n";
}

Json json_of(Labels found, std::span<const std::string> labels,
             std::int64_t top) {
  Json out = Json::array();
  for (const tasks::LabelProbability& one : shown(found, top)) {
    out.push_back({{"label", labels[static_cast<std::size_t>(one.label)]},
                   {"probability", one.probability}});
  }
  return out;
}

std::string report(const tasks::ClassificationScore& score, const char* unit) {
  std::string out = fmt::format(
      "{} {}s\naccuracy  {:.2f} %\nmacro F1  {:.2f} %\n\n", score.examples,
      unit, 100 * score.accuracy, 100 * score.macro_f1);
  int widest = 5;
  for (const auto& label : score.labels) {
    widest = std::clamp(cells_of(label.name), widest, 24);
  }
  out += fmt::format("{} {:>9} {:>9} {:>9} {:>7}\n", fitted("label", widest),
                     "precision", "recall", "F1", unit + std::string("s"));
  for (const auto& label : score.labels) {
    out += fmt::format("{} {:>9.4f} {:>9.4f} {:>9.4f} {:>7}\n",
                       fitted(label.name, widest), label.precision,
                       label.recall, label.f1, label.count);
  }
  out += fmt::format(
      "\nconfusion matrix: a row is what a {} is, a column what was said\n",
      unit);
  constexpr int kCells = 9;
  out += fitted("", widest);
  for (const auto& label : score.labels) {
    const std::string name =
        fitted(label.name, std::min(kCells - 1, cells_of(label.name)));
    out += std::string(static_cast<std::size_t>(kCells - cells_of(name)), ' ') +
           name;
  }
  out += "\n";
  for (std::size_t i = 0; i < score.labels.size(); ++i) {
    out += fitted(score.labels[i].name, widest);
    for (const std::int64_t count : score.confusion[i]) {
      out += fmt::format("{:>{}}", count, kCells);
    }
    out += "\n";
  }
  return out;
}

std::string json_of(const tasks::ClassificationScore& score,
                    const char* units) {
  Json labels = Json::array();
  for (const auto& label : score.labels) {
    labels.push_back({{"label", label.name},
                      {"precision", label.precision},
                      {"recall", label.recall},
                      {"f1", label.f1},
                      {units, label.count}});
  }
  return Json{{units, score.examples},
              {"accuracy", score.accuracy},
              {"macro_f1", score.macro_f1},
              {"labels", std::move(labels)},
              {"confusion", score.confusion}}
             .dump() +
         "\n";
}

}  // namespace regard::cli
