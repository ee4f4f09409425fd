// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention_forward.h"
#include "regard/core/threads.h"

namespace regard::kernels {

// The backward pass of the rows that read one key-value head, in three passes:
//
//   1. prepare a group of kGroupRows rows: pack q and d_out both ways, and take
//      delta = d_out . out - d_lse
//   2. for a run of keys, over all groups in order, and in each over the run's
//      blocks of kKeyBlock keys: with P and dP recomputed,
//      dS = P * (dP - delta), then dv += P^T d_out, dk += dS^T q, dq += dS k
//   3. finish a group: write dq, and what is summed a row
//
// Pass 2 owns its keys; what it adds to a row (dq, bias, slopes) it adds when
// the run before it has, so every sum runs over keys in index order, whoever
// does it. Five products a pair, none twice. A run is several blocks because a
// long head's rows come from far away, and come once a run.

struct BackwardRow {
  const void* out;     // d_v elements
  const void* d_out;   // d_v elements
  const float* d_lse;  // or null
  void* d_q;           // d_k elements, or null
  float* d_bias;       // of key 0, or null; added to if keys have their own
};

// [padded rows] means row_count rounded up to kGroupRows. Columns of rows are
// padded to 16.
struct BackwardHead {
  AttentionBlock block;  // its rows are all rows of the head, any number
  std::int64_t row_count;
  const BackwardRow* backward_rows;  // [row_count]
  std::int64_t kv_len;
  std::int64_t key_run;  // keys of a run, a multiple of kKeyBlock
  bool stores_bias;  // d_bias is written, not added to: each key of each row
  void* d_k;         // of key 0, or null: not written
  void* d_v;
  std::int64_t d_k_stride, d_v_stride;
  // Where rows come in several calls, the sums of a run's keys so far, which
  // are added to; or null. [key_run][d_k] and [key_run][d_v].
  float* d_key_sums;
  float* d_value_sums;

  float* queries;     // [groups][d_k][kGroupRows], scaled to log2
  float* d_outs;      // [groups][d_v][kGroupRows]
  float* query_rows;  // [padded rows][d_k], times the row's scale; of length 1
                      // before that for cosine scores
  float* d_out_rows;  // [padded rows][d_v]
  float* d_query_rows;  // [padded rows][d_k]: dS k; null: nothing is added to
                        // rows
  float* log2_sums;     // [padded rows]; +inf where a row sees nothing
  float* deltas;        // [padded rows]
  float* d_slopes;      // [padded rows], of the row's ALiBi slope
  float* d_row_biases;  // [padded rows], of a bias that all keys share: several
                        // rows may have the same, so the caller sums them
  float* d_scales;      // [padded rows], of the row's scale; or null
  bool* finite;         // [groups]: q and d_out are

  // Called before and after something is added to a group's rows.
  const FunctionRef<void(std::int64_t group)>* begin_turn;
  const FunctionRef<void(std::int64_t group)>* end_turn;
};

// The keys of a run whose keys, values and gradients stay in the second cache.
std::int64_t backward_key_run(std::int64_t d_k, std::int64_t d_v);
std::size_t backward_scratch_floats(std::int64_t key_run, std::int64_t d_k,
                                    std::int64_t d_v);

void backward_prepare(const BackwardHead& head, std::int64_t group) noexcept;
// A run of keys [begin, end): at most key_run, from the start of a key block.
void backward_keys(const BackwardHead& head, std::int64_t begin,
                   std::int64_t end, float* scratch) noexcept;
void backward_finish(const BackwardHead& head, std::int64_t group) noexcept;

}  // namespace regard::kernels
