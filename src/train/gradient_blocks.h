// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "regard/core/threads.h"
#include "regard/tensor/tensor.h"

namespace regard::train {

// Elements of a tensor whose squares are summed together: part of the norm's
// bits, so that what is cut for ranks is cut at a multiple of it.
inline constexpr std::int64_t kGradientBlock = 1 << 14;

// The sum of squares of each block, in the order of the names.
std::vector<double> squares_by_block(const StateDict& gradients,
                                     Threads threads);

}  // namespace regard::train
