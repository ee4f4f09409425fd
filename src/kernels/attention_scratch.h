// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_forward.h"

namespace regard::kernels {

// How attention's kernels lay out their scratch. Every part starts at a
// multiple of 16 floats; value columns are padded to one, so that whole vectors
// fit.
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
    std::int64_t used = 0;
    const auto take = [&](std::int64_t floats) {
      float* const at = base == nullptr ? nullptr : base + used;
      used += padded(floats);
      return at;
    };
    queries = take(groups * d_k * kGroupRows);
    scores = take(kKeyBlock * kGroupRows);
    modifier = take(kKeyBlock * kGroupRows);
    cap_slopes = take(kKeyBlock * kGroupRows);
    max = take(kGroupRows);
    keys = take(kKeyBlock * d_k);
    values = take(kKeyBlock * value_columns);
    rows = take(kGroupRows * d_k);
    waiting = take(kGroupRows * padded(d_k > d_v ? d_k : d_v));
    visible = reinterpret_cast<std::uint8_t*>(take(kKeyBlock * kGroupRows / 4));
    for (float*& state : states) {
      state = take(groups * kGroupRows * (2 + value_columns));
    }
    size = static_cast<std::size_t>(used);
  }
};

}  // namespace regard::kernels
