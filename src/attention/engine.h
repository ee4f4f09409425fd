// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "attention/problem.h"
#include "attention/row_blocks.h"

namespace regard::detail {

// False where the machine has no SIMD target with kernels: plain loops then.
bool engine_available();

// How engine_forward runs a problem, decided before it runs.
struct EnginePlan {
  int threads;
  RowBlocks blocks;
  // Of the longest sequence, where the splits of a block run side by side; 0
  // where they run one after the other.
  std::int64_t splits = 0;

  explicit EnginePlan(const Problem<float>& problem);
};

// attention_forward on the fused kernels: cuts the rows into blocks, spreads
// them over threads, and hands each to kernels/attention_forward.h.
void engine_forward(const Problem<float>& problem, const Elements& out);

}  // namespace regard::detail
