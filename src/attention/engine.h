// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/problem.h"

namespace regard::detail {

// False where the machine has no SIMD target with kernels: plain loops then.
bool engine_available();

// attention_forward on the fused kernels: cuts the rows into blocks, spreads
// them over threads, and hands each to kernels/attention_forward.h.
template <typename T>
void engine_forward(const Problem<T>& problem, TensorView<T, 4> out);

}  // namespace regard::detail
