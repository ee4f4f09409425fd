// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace regard::tasks {

// Whether up to twelve characters stand four times in a row, as where a model
// has lost its way. Digits and marks may: 10000000, "......".
bool has_repetition(std::string_view text);

}  // namespace regard::tasks
