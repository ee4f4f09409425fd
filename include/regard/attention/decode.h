// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "regard/attention/attention.h"
#include "regard/attention/kv_cache.h"
#include "regard/tensor/tensor_view.h"

namespace regard {

// attention_forward with keys and values from a cache: the last q_len tokens of
// each sequence ask, after they were appended.
//
//   q   [n, heads, q_len, d_k]   entry i is sequences[i] of the cache;
//   out [n, heads, q_len, d_v]   without `sequences`, all of them in order
//
// kv_heads of the cache divides heads. A sequence may come more than once.
// Each entry is a sequence of its own with its own kv_len, as in a packed call
// of attention_forward: query i stands at position i + kv_len - q_len, masks
// are aligned and ALiBi counts by that. As there, the default mask shows every
// key: where q_len > 1 and a query must not see the tokens after it, pass
// mask::causal(). A ring also hides what lies outside its window.
//
// Options are those of attention_forward, but no dropout, no `sequences` there,
// no Compute::kBFloat16, and no mask of the kinds keep, drop and documents: a
// bias of -inf hides any pair. bias is [n or 1, heads or 1, q_len or 1, at
// least the longest kv_len, or 1]; log_sum_exp is [n, heads, q_len].
//
// A row has the bits of the same row of an attention_forward on the same
// tokens, for every kind of cache, batch and number of threads; with bf16 and
// fp16 storage, of one in float on the rounded k and v. int8: see
// docs/exactness.md. A row that sees no key yields zeros. NaN and infinities
// reach exactly the rows that see them; in int8 storage one such element makes
// its token's whole k or v NaN.
//
// Made for a q_len of 1 to 16. More works, and is what is left where a prompt
// goes on after a loaded prefix, but a ring may have overwritten keys that the
// first of more than 16 queries should see: it then throws.
//
// Time grows with the keys that are seen; nothing is copied. Throws
// InvalidArgument if shapes or options disagree; out is then untouched.
void attention_decode(TensorView<const float, 4> q, const KVCache& cache,
                      TensorView<float, 4> out,
                      const AttentionOptions& options = {});
void attention_decode(TensorView<const float, 4> q, const KVCache& cache,
                      std::span<const std::int64_t> sequences,
                      TensorView<float, 4> out,
                      const AttentionOptions& options = {});

}  // namespace regard
