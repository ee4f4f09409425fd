// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace regard::tasks {

// How well labels were found, as scikit-learn counts it.
struct ClassificationScore {
  struct Label {
    std::string name;
    double precision = 0;  // right share of its predictions; 0 if none
    double recall = 0;     // found of those that are so; 0 where none is
    double f1 = 0;         // their harmonic mean
    std::int64_t count = 0;
  };

  std::int64_t examples = 0;
  double accuracy = 0;
  double macro_f1 = 0;        // the mean of f1 over the labels
  std::vector<Label> labels;  // that occur or are predicted, in byte order
  // confusion[i][j]: how many of label i were predicted as label j.
  std::vector<std::vector<std::int64_t>> confusion;
};

// Throws InvalidArgument unless there are as many of both, and one at least.
ClassificationScore score_labels(std::span<const std::string> truth,
                                 std::span<const std::string> said);

}  // namespace regard::tasks
