// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/storage.h"

namespace regard::kernels {

// Attention of a block of rows against a range of keys, in the canonical order
// (docs/exactness.md). A row is one query of one head; rows that read the same
// keys stand together, whatever their head. Vector lanes run over rows, so no
// sum is ever taken across a vector and the bits do not depend on its width.

inline constexpr int kGroupRows = 48;  // rows whose scores are one tile
inline constexpr int kMaxRows = 8 * kGroupRows;  // rows of one call

// The canonical order: what is summed on its own, from zero, before it is added
// to the rest. Keys are counted from the first of the sequence.
inline constexpr std::int64_t kChainKeys = 64;    // of a sum over values
inline constexpr std::int64_t kKeyBlock = 128;    // chains; the keys of a tile
inline constexpr std::int64_t kSplitKeys = 1024;  // blocks
static_assert(kKeyBlock % kChainKeys == 0 && kSplitKeys % kKeyBlock == 0);
// Where the chain of q . k that starts at element c ends: two to four chains
// for the usual heads. A short rest joins the last chain.
constexpr std::int64_t depth_chain_end(std::int64_t c, std::int64_t d_k) {
  const std::int64_t chain = d_k < 64 ? 24 : d_k < 128 ? 32 : 64;
  return d_k - c <= chain + chain / 2 ? d_k : c + chain;
}
// Where the block of a key ends.
constexpr std::int64_t key_block_end(std::int64_t key) {
  return (key / kKeyBlock + 1) * kKeyBlock;
}
// The keys from this one on that a chain still takes.
constexpr std::int64_t keys_until_cut(std::int64_t key) {
  return kChainKeys - key % kChainKeys;
}

// What becomes of the products of a call, but for what hides pairs: see
// score_ops-inl.h.
struct ScoreOptions {
  bool cosine = false;
  float softcap = 0;  // 0: none
  bool has_bias = false;
  int bias_key_stride = 0;  // 0 or 1
  bool has_alibi = false;

  bool change_products() const { return softcap != 0 || has_bias || has_alibi; }
  // Is the derivative of a score by its product anything but 1?
  bool bend_products() const { return softcap != 0; }
};

struct AttentionRow {
  const void* q;            // d_k elements
  void* out;                // d_v elements
  float* lse;               // or null
  const float* bias;        // of key 0, or null
  std::int64_t begin, end;  // the keys the row sees, but for the dense parts
  float scale;              // what q is multiplied by
  float alibi_slope;
  float alibi_position;  // the query's place among the keys
  float sink;
  std::uint32_t dropout_counter[3];  // query, head, batch
};

// Keys and values of one head, at key 0.
struct AttentionKeys {
  const void* k;
  const void* v;
  std::int64_t k_stride, v_stride;  // elements
  std::int64_t d_k, d_v;
  Storage storage;
};

struct AttentionDense {
  const bool* const* rows;  // a row's bool of key 0
  bool visible_when;
};

struct AttentionBlock {
  AttentionKeys keys;
  const AttentionRow* rows;
  int row_count;           // 1 .. kMaxRows
  std::int64_t first_row;  // the number of rows[0] in `dense`
  bool same_keys;  // every row has the same begin and end; false if unknown
  const AttentionDense* dense;
  int dense_count;
  ScoreOptions score;
  bool has_sink;
  std::uint32_t dropout_threshold;  // 0: none
  std::uint64_t dropout_seed;
  float keep_scale;  // 1 / (1 - dropout rate)
  float* scratch;    // attention_scratch_floats(), 64-byte aligned
};

// False on a SIMD target that has none of what follows.
bool attention_has_kernel();

// Floats of scratch for so many rows.
std::size_t attention_scratch_floats(int row_count, std::int64_t d_k,
                                     std::int64_t d_v);

// Floats of one split's result, to be merged: see attention_split.
std::size_t attention_state_floats(int row_count, std::int64_t d_v);

// All keys, one split after the other; writes out and lse.
void attention_forward_block(const AttentionBlock& block) noexcept;

// The same cut in two, so that splits can be spread over threads: the state of
// split number `split`, which holds the keys [split, split + 1) * kSplitKeys;
// then the merge of the states of `count` successive splits, one after the
// other in memory, which writes out and lse. Splits that no row sees may be
// left out.
void attention_split(const AttentionBlock& block, std::int64_t split,
                     float* state) noexcept;
void attention_merge(const AttentionBlock& block, std::int64_t count,
                     float* states) noexcept;

}  // namespace regard::kernels
