// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "regard/tasks/score.h"

namespace regard::tasks {

// White space as Python's str.split() has it.
bool is_space(char32_t c);

// The line's code points, in small letters where the options say so.
std::u32string folded(std::string_view line, const ScoreOptions& options);

}  // namespace regard::tasks
