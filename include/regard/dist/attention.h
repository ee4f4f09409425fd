// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "regard/attention/attention.h"
#include "regard/attention/backward.h"
#include "regard/dist/communicator.h"

// Attention over a sequence that is spread over ranks.
namespace regard::dist {

enum class Way { kByHeads, kBySequence };

// Which of the two ways below a call takes: by heads, where there are as many
// kv_heads as ranks, and no dropout.
Way way_of(std::int64_t kv_heads, int ranks, const AttentionOptions& options);

// What attention_forward(q, k, v, out, options) writes, where every rank holds
// the queries part_of(q_len) and the keys part_of(kv_len) of the sequence:
//
//   q   [batch, heads,    own queries, d_k]
//   k   [batch, kv_heads, own keys,    d_k]
//   v   [batch, kv_heads, own keys,    d_v]
//   out [batch, heads,    own queries, d_v]
//
// The options are those of the call in one process, about the whole sequence:
// mask, bias and sequences count all queries and keys; per-head options have
// all heads. options.log_sum_exp is [batch, heads, own queries].
//
// In one of two ways, which both have the bits of one process for any number of
// ranks, and in which a rank holds as much in between as before:
//
// By heads, where there are as many kv_heads as ranks, and no dropout: two
// all-to-alls turn parts of the sequence with all heads into some heads of the
// whole sequence, and back. All ranks have as much to do, whatever the mask.
//
// By sequence, otherwise: each rank works on an early and a late part of the
// queries, so that a causal mask gives all as much to do, while the keys and
// values come from one rank after the other, as far as some query sees them.
// The state of a row visits the keys in their order, as in one process. Packed
// sequences and compute in bf16 are refused.
//
// All ranks call it with the same options. Elements may be float, BFloat16 and
// Float16. Throws InvalidArgument where attention_forward would.
void attention_forward(Communicator& ranks, ConstUntypedView<4> q,
                       ConstUntypedView<4> k, ConstUntypedView<4> v,
                       UntypedView<4> out, const AttentionOptions& options);

// The gradients of it, by the same parts and the same way: what
// attention_backward writes, with the same bits, as far as it belongs to this
// rank's queries and keys. Those of alibi_slopes, sinks and head_scales reach
// every rank; that of a bias is refused.
//
// By sequence in two passes: for dq each rank works on some of the queries
// while keys and values come in index order, for dk and dv on some of the keys
// while queries come. No rank waits for the sums of another; seven products for
// each pair, where one process has five.
void attention_backward(Communicator& ranks,
                        const UntypedBackwardInputs& inputs,
                        const UntypedGradients& gradients,
                        const AttentionOptions& options);

}  // namespace regard::dist
