// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/problem.h"

namespace regard::detail {

// Attention by plain loops in Real, one row at a time: for
// double, and where there is no engine. O(kv_len) memory a thread.
template <typename Real>
void plain_forward(const Problem<Real>& problem, const Elements& out);

}  // namespace regard::detail
