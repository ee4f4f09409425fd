// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/memory_layout.h"
#include "kernels/attention_forward.h"

namespace regard::kernels {

// How attention's kernels lay out their scratch. Value columns are padded to a
// multiple of 16, so that whole vectors fit.
struct AttentionScratch {
  float* queries;         // [groups][d_k][kGroupRows]
  float* scores;          // [kKeyBlock][kGroupRows], then weights
  float* modifier;        // [kKeyBlock][kGroupRows], bias
  float* cap_slopes;      // [kKeyBlock][kGroupRows], derivatives of the softcap
  float* max;             // [kGroupRows]
  float* keys;            // [kKeyBlock][d_k], converted
  float* values;          // [kKeyBlock][value_columns], converted
  float* rows;            // [kGroupRows][d_k], converted
  float* waiting;         // [kGroupRows][padded d_k or d_v], of chains
  std::uint8_t* visible;  // [kKeyBlock][kGroupRows], dense masks
  float* states[2];       // of attention_state_floats()
  std::int64_t value_columns;
  std::size_t size;  // floats in all

  static constexpr std::int64_t padded(std::int64_t n) {
    return (n + 15) / 16 * 16;
  }

  AttentionScratch(float* base, int row_count, std::int64_t d_k,
                   std::int64_t d_v)
      : value_columns(padded(d_v)) {
    const std::int64_t groups = (row_count + kGroupRows - 1) / kGroupRows;
    MemoryLayout memory(base);
    memory.take(queries, groups * d_k * kGroupRows);
    memory.take(scores, kKeyBlock * kGroupRows);
    memory.take(modifier, kKeyBlock * kGroupRows);
    memory.take(cap_slopes, kKeyBlock * kGroupRows);
    memory.take(max, kGroupRows);
    memory.take(keys, kKeyBlock * d_k);
    memory.take(values, kKeyBlock * value_columns);
    memory.take(rows, kGroupRows * d_k);
    memory.take(waiting, kGroupRows * padded(d_k > d_v ? d_k : d_v));
    memory.take(visible, kKeyBlock * kGroupRows);
    for (float*& state : states) {
      memory.take(state, groups * kGroupRows * (2 + value_columns));
    }
    size = memory.used() / sizeof(float);
  }
};

}  // namespace regard::kernels
