// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "regard/tasks/score.h"

namespace regard::cli {

// Lines for people, or a JSON object.
std::string rouge_report(const tasks::RougeScore& rouge, bool json);

}  // namespace regard::cli
