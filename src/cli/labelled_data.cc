// SPDX-License-Identifier: Apache-2.0
#include "cli/labelled_data.h"

#include <algorithm>

#include "regard/core/error.h"
#include "regard/tasks/example_task.h"

namespace regard::cli {
namespace {

using tasks::LabelledTexts;

LabelledTexts chosen(const LabelledTexts& all,
                     const std::vector<std::int64_t>& numbers) {
  LabelledTexts some;
  for (const std::int64_t number : numbers) {
    const auto i = static_cast<std::size_t>(number);
    some.texts.push_back(all.texts[i]);
    some.labels.push_back(all.labels[i]);
    some.lines.push_back(all.lines[i]);
  }
  return some;
}

std::vector<std::string> labels_of(const LabelledTexts& texts,
                                   const LabelledFiles& files) {
  std::vector<std::string> labels = texts.labels;
  std::sort(labels.begin(), labels.end());
  labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
  require(labels.size() >= 2, files.command,
          "there must be at least two labels to tell apart; '", files.train,
          "' has only '", labels.front(), "'");
  return labels;
}

}  // namespace

LabelledData read_labelled_data(const LabelledFiles& files) {
  const auto read = [&](const std::string& file) {
    return tasks::read_labelled_texts(file, files.text_column,
                                      files.label_column);
  };
  LabelledData data;
  data.training = read(files.train);
  if (!files.valid.empty()) {
    data.held_out = read(files.valid);
  } else {
    const tasks::Split split = tasks::split_examples(
        data.training.texts, files.valid_share, files.seed);
    data.held_out = chosen(data.training, split.held_out);
    data.training = chosen(data.training, split.training);
  }
  require(data.training.size() > 0, files.command, "there are no ", files.unit,
          " to learn from in '", files.train, "'");
  data.labels = labels_of(data.training, files);
  return data;
}

}  // namespace regard::cli
