// SPDX-License-Identifier: Apache-2.0
// Queries on their way to the rank that works on them, and results back.
#pragma once

#include <array>
#include <cstdint>

#include "dist/block.h"
#include "regard/dist/communicator.h"
#include "regard/tensor/tensor.h"

namespace regard::dist {

// Some queries that a rank works on.
struct QueryChunk {
  Part queries;  // of the sequence
  Block q, out;
  Tensor rows;  // log-sum-exp, [batch, heads, queries]
};

// Queries are worked on in twice as many chunks as there are ranks: each works
// on an early and a late one, so that under a causal mask all have as much to
// do. Each holds part_of(q_len), which is two successive chunks.
using QueryChunks = std::array<QueryChunk, 2>;

// Sends the own queries away; what this rank works on, in the order of the
// sequence.
QueryChunks send_queries(Communicator& ranks, std::int64_t q_len,
                         const ConstUntypedView<4>& own_q, std::int64_t d_v);

// Sends results back: out, and rows where log_sum_exp is not null.
void return_results(Communicator& ranks, std::int64_t q_len,
                    QueryChunks& chunks, const UntypedView<4>& own_out,
                    const TensorView<float, 3>& log_sum_exp);

}  // namespace regard::dist
