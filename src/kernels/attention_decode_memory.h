// SPDX-License-Identifier: Apache-2.0
// What the kernels of attention_decode.h keep while they work.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/memory_layout.h"
#include "kernels/attention_decode.h"

namespace regard::kernels {

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
    MemoryLayout memory(base);
    memory.take(queries, kDecodeRows * layout.d_k);
    memory.take(weights, kDecodeRows * kScoreStride);
    memory.take(out, kDecodeRows * layout.columns());
    memory.take(key_block, kDecodeRows * layout.columns());
    size = memory.used() / sizeof(float);
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
