// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention_decode.h keep while they work.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_decode.h"
#include "kernels/attention_scratch.h"

namespace regard::kernels {

inline constexpr int kSplitBlocks = kSplitKeys / kBlockKeys;
inline constexpr int kDecodeRows = 16;     // rows that share a pass
inline constexpr int kDecodeTileRows = 4;  // rows of a register tile
inline constexpr int kMostTileBlocks = 4;
// A score tile may reach over the end of a split.
inline constexpr int kScoreStride =
    kSplitKeys + (kMostTileBlocks - 1) * kBlockKeys;

// The lanes [begin, end) of a block.
struct LaneRange {
  std::int64_t begin, end;
};

// How decode_split lays out its scratch.
struct DecodeScratch {
  float* queries;    // [kDecodeRows][d_k], scaled to log2
  float* weights;    // [kDecodeRows][kScoreStride], scores at first
  float* out;        // [kDecodeRows][columns]
  float* key_block;  // [kDecodeRows][columns]
  std::size_t size;

  DecodeScratch(float* base, const KVLayout& layout) {
    std::int64_t used = 0;
    const auto take = [&](std::int64_t floats) {
      float* const at = base == nullptr ? nullptr : base + used;
      used += AttentionScratch::padded(floats);
      return at;
    };
    queries = take(kDecodeRows * layout.d_k);
    weights = take(kDecodeRows * kScoreStride);
    out = take(kDecodeRows * layout.columns());
    key_block = take(kDecodeRows * layout.columns());
    size = static_cast<std::size_t>(used);
  }
};

// The result of one split, or of several merged, for one row.
struct DecodeState {
  float* out;  // [columns]
  float* max;
  float* sum;

  static std::int64_t floats(std::int64_t columns) { return columns + 16; }
  DecodeState(float* memory, std::int64_t columns)
      : out(memory), max(memory + columns), sum(memory + columns + 1) {}
};

}  // namespace regard::kernels
