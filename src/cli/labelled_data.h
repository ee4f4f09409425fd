// SPDX-License-Identifier: Apache-2.0
// What a training of labels reads: tables of texts or clips.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regard/tasks/classifier.h"

namespace regard::cli {

struct LabelledFiles {
  const char* command;  // for errors
  const char* unit;     // "texts"
  std::string train, valid;
  double valid_share = 0.1;  // held out where `valid` is empty
  std::uint64_t seed = 1;
  std::string text_column = "text";
  std::string label_column = "label";
};

struct LabelledData {
  tasks::LabelledTexts training, held_out;
  std::vector<std::string> labels;  // those of training, sorted
};

// Throws as read_table() does, and InvalidArgument where there is nothing to
// learn from or only one label.
LabelledData read_labelled_data(const LabelledFiles& files);

}  // namespace regard::cli
