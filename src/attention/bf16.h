// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/problem.h"

namespace regard::detail {

// attention_forward with products of bf16 numbers: packs the keys and values of
// some heads, runs the rows that read them, then the next heads. Needs
// engine_available().
void bf16_forward(const Problem<float>& problem, const Elements& out);

}  // namespace regard::detail
