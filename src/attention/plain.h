// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "attention/problem.h"

namespace regard::detail {

// Attention by plain loops in T's own arithmetic, one row at a time: the double
// path, where there is no engine. O(kv_len) memory a thread.
template <typename T>
void plain_forward(const Problem<T>& problem, TensorView<T, 4> out);

// One query of one head of an entry, and the mask of that entry.
struct PlainRow {
  const BoundMask& mask;
  std::int64_t index, head, query;
};

// weights[0, kv_len) <- the softmax of the row, before dropout; 0 where hidden.
template <typename T>
void plain_weights(const Problem<T>& problem, const PlainRow& row,
                   RealOf<T>* weights);

}  // namespace regard::detail
