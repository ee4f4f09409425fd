// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/problem.h"

namespace regard::detail {

// attention_forward with products of bf16 numbers: packs the keys and values of
// some heads, runs the rows that read them, then the next heads. Needs
// engine_available().
template <typename T>
void bf16_forward(const Problem<T>& problem, TensorView<T, 4> out);

}  // namespace regard::detail
