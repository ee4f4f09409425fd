// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_backward.h"

namespace regard::kernels {

// The backward pass of the rows that read one key-value head, with products of
// bf16 numbers that are summed in fp32:
//
//   P  = 2^(score in log2 - log-sum-exp), the score as bf16_attention.h has it
//   dP = d_out v^T, dS = P * (dP - delta), delta = d_out . out - d_lse
//   dv = P^T d_out, dk = dS^T q, dq = dS k
//
// q, k, v and d_out are rounded to bf16, and so are P and dS where they are
// multiplied; everything between stays in fp32. Sums go over groups of 32 keys
// and strips of 32 rows in index order, so on one path the bits of a head
// depend on nothing but the head.
struct Bf16BackwardHead {
  AttentionBlock block;  // its rows are all rows of the head, any number
  std::int64_t row_count;
  const BackwardRow* backward_rows;  // [row_count]
  std::int64_t kv_len;
  void* d_k;  // of key 0, or null
  void* d_v;
  std::int64_t d_k_stride, d_v_stride;
  // [row_count] each, written: delta, and the gradients of what there is one of
  // a row: its ALiBi slope, its bias if all keys share it, its scale.
  float *deltas, *d_slopes, *d_row_biases, *d_scales;
};

std::size_t bf16_backward_bytes(std::int64_t row_count, std::int64_t kv_len,
                                std::int64_t d_k, std::int64_t d_v);
// memory is 64-byte aligned.
void bf16_backward_head(const Bf16BackwardHead& head,
                        std::byte* memory) noexcept;

}  // namespace regard::kernels
