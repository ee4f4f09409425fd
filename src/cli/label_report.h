// SPDX-License-Identifier: Apache-2.0
// What was said of texts or clips, and how good it is, for people and as JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "json/json.h"
#include "regard/tasks/classification_score.h"
#include "regard/tasks/classifier.h"

namespace regard::cli {

// The likeliest labels, at most `top`: label, tab, probability, tab, ..., and a
// line end; or an array in JSON.
std::string line_of(std::span<const tasks::LabelProbability> found,
                    std::span<const std::string> labels, std::int64_t top);
Json json_of(std::span<const tasks::LabelProbability> found,
             std::span<const std::string> labels, std::int64_t top);

// Accuracy, macro F1, each label and the confusion matrix. `unit` is what was
// scored, such as "text"; `units` more than one of them.
std::string report(const tasks::ClassificationScore& score, const char* unit);
std::string json_of(const tasks::ClassificationScore& score, const char* units);

}  // namespace regard::cli
