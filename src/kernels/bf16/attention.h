// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_forward.h"
#include "kernels/bf16/paths.h"

namespace regard::kernels {

// Attention whose products are of bf16 numbers, summed in fp32.
//
//   score  = scale * (q . k), q and k rounded to bf16, the rest in fp32
//   weight = 2^(score in log2 - m), rounded to bf16; m is an integer, so no bit
//            of a weight depends on it but for the exponent
//   out    = sum of weight * v / sum of weight, v rounded to bf16
//
// Both sums are of the rounded weights, so the weights of a row add up to one
// and a row that sees one key returns its value. Sums go over groups of 32 keys
// that count from key 0. A row's bits depend on its own q, the keys it sees and
// the path (kernels/bf16/cpu.h), on nothing else.

// Memory of one packed head.
std::size_t bf16_head_bytes(std::int64_t kv_len, std::int64_t d_k,
                            std::int64_t d_v);
// The head at `memory`, 64-byte aligned. It takes keys of any length where
// scores are cosines.
Bf16Head bf16_head(std::byte* memory, std::int64_t kv_len, std::int64_t d_k,
                   std::int64_t d_v, const ScoreOptions& score);
inline std::int64_t bf16_groups(std::int64_t kv_len) {
  return (kv_len + kGroupKeys - 1) / kGroupKeys;
}

// Packs groups [first, last) of a head, each on its own.
std::size_t bf16_pack_scratch_bytes(std::int64_t d_k, std::int64_t d_v);
void bf16_pack_groups(const AttentionKeys& keys, const Bf16Head& head,
                      std::int64_t first, std::int64_t last,
                      std::byte* scratch) noexcept;
// The same with the keys in the place of the values, too.
void bf16_pack_keys_twice(const AttentionKeys& keys, const Bf16Head& head,
                          std::int64_t first, std::int64_t last,
                          std::byte* scratch) noexcept;

// All rows of a block against a packed head; writes out and lse. scratch takes
// the place of block.scratch.
std::size_t bf16_block_scratch_bytes(int row_count, std::int64_t d_k,
                                     std::int64_t d_v);
void bf16_forward_block(const AttentionBlock& block, const Bf16Head& head,
                        std::byte* scratch) noexcept;

}  // namespace regard::kernels
