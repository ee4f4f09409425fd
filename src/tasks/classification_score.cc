// SPDX-License-Identifier: Apache-2.0
#include "regard/tasks/classification_score.h"

#include <algorithm>

#include "regard/core/error.h"

namespace regard::tasks {

ClassificationScore score_labels(std::span<const std::string> truth,
                                 std::span<const std::string> said) {
  require(truth.size() == said.size() && !truth.empty(), "score_labels",
          "there must be as many labels said as true ones, and one at least; "
          "got ",
          said.size(), " and ", truth.size());
  std::vector<std::string> names(truth.begin(), truth.end());
  names.insert(names.end(), said.begin(), said.end());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const auto place = [&names](const std::string& name) {
    return static_cast<std::size_t>(
        std::lower_bound(names.begin(), names.end(), name) - names.begin());
  };
  ClassificationScore score;
  score.examples = std::ssize(truth);
  score.confusion.assign(names.size(),
                         std::vector<std::int64_t>(names.size(), 0));
  for (std::size_t i = 0; i < truth.size(); ++i) {
    ++score.confusion[place(truth[i])][place(said[i])];
  }
  const auto ratio = [](std::int64_t part, std::int64_t whole) {
    return whole == 0 ? 0.0
                      : static_cast<double>(part) / static_cast<double>(whole);
  };
  std::int64_t right = 0;
  for (std::size_t l = 0; l < names.size(); ++l) {
    std::int64_t is = 0;
    std::int64_t was_said = 0;
    for (std::size_t other = 0; other < names.size(); ++other) {
      is += score.confusion[l][other];
      was_said += score.confusion[other][l];
    }
    const std::int64_t both = score.confusion[l][l];
    right += both;
    score.labels.push_back({names[l], ratio(both, was_said), ratio(both, is),
                            ratio(2 * both, is + was_said), is});
    score.macro_f1 += score.labels.back().f1;
  }
  score.macro_f1 /= static_cast<double>(names.size());
  score.accuracy = ratio(right, score.examples);
  return score;
}

}  // namespace regard::tasks
