// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/problem.h"

namespace regard::detail {

// Attention by plain loops in T's own arithmetic, one row at a time: for
// double, and where there is no engine. O(kv_len) memory a thread.
template <typename T>
void plain_forward(const Problem<T>& problem, TensorView<T, 4> out);

}  // namespace regard::detail
