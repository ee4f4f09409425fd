// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace regard::cli {

// "; did you mean --heads?" for the name that is most like `word`, or nothing
// where none is like it. Alike is: the beginning of one name alone, or few
// letters changed, left out, added or swapped with their neighbour.
std::string did_you_mean(std::string_view word,
                         const std::vector<std::string>& names);

}  // namespace regard::cli
