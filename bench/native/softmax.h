// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace regard::bench {

// row = exp(row - max(row)) in place; returns the sum. The rival's softmax,
// with Highway's own exp on the machine's best target.
float exp_row(float* row, std::int64_t count);

}  // namespace regard::bench
