// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/bf16/passes.h"

namespace regard::kernels {

// Bits [begin, end) of the 32 that start at `key`.
inline std::uint32_t bits_between(std::int64_t begin, std::int64_t end,
                                  std::int64_t key) {
  const auto bits_below = [key](std::int64_t at) {
    const std::int64_t n = std::clamp<std::int64_t>(at - key, 0, 32);
    return (std::uint64_t{1} << n) - 1;
  };
  return static_cast<std::uint32_t>(bits_below(end) & ~bits_below(begin));
}

// Which keys of the group that starts at `key` 16 rows see: words[16] <- a bit
// a key. row_number(r) is the row's number among the rows of the dense parts.
template <typename RowNumber>
Shown bf16_see_group(const AttentionBlock& block,
                     const AttentionRow* const* rows,
                     const RowNumber& row_number, std::int64_t key,
                     std::int64_t kv_len, std::uint32_t* words) {
  for (int r = 0; r < 16; ++r) {
    words[r] = bits_between(rows[r]->begin, rows[r]->end, key);
  }
  const auto n =
      static_cast<int>(std::min<std::int64_t>(kGroupKeys, kv_len - key));
  for (int part = 0; part < block.dense_count; ++part) {
    const bool* dense[16];
    for (int r = 0; r < 16; ++r) {
      dense[r] = block.dense[part].rows[row_number(r)];
    }
    bf16_dense_words(dense, key, n, block.dense[part].visible_when, words);
  }
  std::uint32_t some = 0, every = ~0u;
  for (int r = 0; r < 16; ++r) {
    some |= words[r];
    every &= words[r];
  }
  return some == 0 ? Shown::kNone : every == ~0u ? Shown::kAll : Shown::kSome;
}

}  // namespace regard::kernels
