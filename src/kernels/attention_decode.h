// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_forward.h"

namespace regard::kernels {

// Attention of a few rows against cached keys, in the canonical order
// (docs/exactness.md). The bits are those of attention_forward.h; there lanes
// run over rows, here over keys for the scores and over columns for the output,
// because one row must not leave the other lanes idle.

inline constexpr int kBlockKeys = 16;  // keys that lie together
inline constexpr int kSplitBlocks = static_cast<int>(kSplitKeys / kBlockKeys);

enum class KVStorage { kFloat32, kBFloat16, kFloat16, kInt8 };

// How the cache lays out 16 successive tokens of one head:
//   k block: [d_k][16], so that a vector holds one element of 16 keys
//   v block: [16][columns], rows padded to whole vectors
// Behind each block of int8 stand 16 float scales. A block is a whole number of
// cache lines.
struct KVLayout {
  KVStorage storage;
  std::int64_t d_k, d_v;

  std::int64_t element_bytes() const {
    return storage == KVStorage::kFloat32 ? 4
           : storage == KVStorage::kInt8  ? 1
                                          : 2;
  }
  std::int64_t columns() const { return lines(d_v); }
  // From the start of a block to its scales.
  std::int64_t k_scales() const { return 4 * lines(d_k * 4 * element_bytes()); }
  std::int64_t v_scales() const {
    return kBlockKeys * columns() * element_bytes();
  }
  std::int64_t k_bytes() const { return k_scales() + scale_bytes(); }
  std::int64_t v_bytes() const { return v_scales() + scale_bytes(); }

 private:
  static std::int64_t lines(std::int64_t n) { return (n + 15) / 16 * 16; }
  std::int64_t scale_bytes() const {
    return storage == KVStorage::kInt8 ? kBlockKeys * 4 : 0;
  }
};

struct DecodeBlock {
  const std::byte* k;
  const std::byte* v;
  std::int64_t first_key;  // its place in the sequence, a multiple of 16
};

// One query of one head.
struct DecodeRow {
  const float* q;                       // d_k elements
  float* out;                           // d_v elements
  float* lse;                           // or null
  const float* bias;                    // of key 0, or null
  std::int64_t begin, end;              // sees these keys, and
  std::int64_t early_begin, early_end;  // these, which a window has left behind
  std::int64_t position;                // the query's place among the keys
  float scale;                          // what q is multiplied by
  float alibi_slope;
  float sink;
};

// Rows that read the same keys, and the blocks of one split that hold all that
// any of them sees, in key order.
struct DecodeSplit {
  KVLayout layout;
  const DecodeRow* rows;
  int row_count;
  const DecodeBlock* blocks;
  int block_count;  // 0 .. kSplitBlocks
  ScoreOptions score;
  float* scratch;  // decode_scratch_floats(), 64-byte aligned
};

std::size_t decode_scratch_floats(const KVLayout& layout);

// Floats of one split's result: the maximum, the sum and the output of each
// row.
std::size_t decode_state_floats(const KVLayout& layout, int row_count);

// The state of one split, 64-byte aligned.
void decode_split(const DecodeSplit& split, float* state) noexcept;

// Merges the states of `count` splits, one after the other in memory in the
// order of their keys, into the first of them, and writes out and lse.
void decode_merge(const DecodeSplit& split, bool has_sink, std::int64_t count,
                  float* states) noexcept;

}  // namespace regard::kernels
