// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace regard::tasks {

// How many kinds of tokens the reader of choices tells apart.
inline constexpr std::int64_t kChoiceKinds = 16;

}  // namespace regard::tasks
