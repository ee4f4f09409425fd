// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "regard/attention/attention.h"
#include "regard/core/threads.h"
#include "regard/tensor/tensor_view.h"

namespace regard {

// The attention weights: softmax(...) as in attention_forward, before dropout.
// A hidden pair has weight 0, and so has every pair of a row that sees no key.
// Every other row sums to 1, less with sinks. NaN and infinities reach exactly
// the rows that see them. BFloat16 and Float16 give float weights, double gives
// double. Results do not depend on the number of threads. options.log_sum_exp
// is not written, and options.compute makes no difference: weights are those of
// Compute::kFloat32.

enum class OverHeads {
  kEach,  // every head on its own
  kMean,  // the weights averaged over the heads, and all else taken of those
};
enum class OverRows { kSum, kMean };

// What is wanted of the weights. Null views are not asked for. Below, heads is
// 1 with OverHeads::kMean, and rows counts the rows asked for.
template <typename Real>
struct BasicWeightsRequest {
  // The queries wanted, in any order. Empty: all of them, in order.
  std::span<const std::int64_t> rows{};
  OverHeads heads = OverHeads::kEach;

  TensorView<Real, 4> weights{};  // [batch, heads, rows, kv_len], not packed

  // [batch, heads, rows, n], n >= 1: the n largest weights of each row, largest
  // first, ties to the lower key, and their keys. Places past the last weight
  // above 0 hold key -1 and weight 0. A row with a NaN: all -1 and NaN.
  TensorView<std::int64_t, 4> top_keys{};
  TensorView<Real, 4> top_weights{};

  // [batch, heads, kv_len]: the weights that each key gets, over the rows.
  TensorView<Real, 3> received{};
  OverRows received_over = OverRows::kSum;

  // [batch, heads, rows]: -sum of w ln w over the keys, in nats. 0 for a row
  // that sees no key.
  TensorView<Real, 3> entropy{};
};
using WeightsRequest = BasicWeightsRequest<float>;
using WeightsRequestF64 = BasicWeightsRequest<double>;
using WeightsRequestRef = FloatOrDouble<BasicWeightsRequest>;

namespace detail {
template <typename T>
using RequestOf = BasicWeightsRequest<RealOf<T>>;
}

// All of the weights, or parts of them without all:
//
//   attention_weights(q, k, {.weights = weights});
//   attention_weights(q, k, {.rows = last, .top_keys = keys,
//                            .top_weights = weights},
//                     {.mask = mask::causal()});
//
//   q [batch, heads,    q_len,  d_k]
//   k [batch, kv_heads, kv_len, d_k]
//
// What is written may not overlap q and k. Memory beyond what is asked for is
// about 100 rows for each thread, twice that for a mean, whatever q_len is.
//
// With options.sequences, batch is 1 in every shape, rows are queries of the
// packed q, received is [1, heads, total_kv], keys count from their sequence's
// start, and means over rows are over those of the key's sequence.
//
// Throws InvalidArgument if shapes or options disagree; nothing is written
// then.
template <typename Q>
void attention_weights(TensorView<Q, 4> q, detail::LikeQ<Q> k,
                       const detail::RequestOf<Q>& request,
                       const detail::OptionsOf<Q>& options = {});
// Short for {.weights = weights}.
template <typename Q>
void attention_weights(TensorView<Q, 4> q, detail::LikeQ<Q> k,
                       TensorView<detail::RealOf<Q>, 4> weights,
                       const detail::OptionsOf<Q>& options = {});

// attention_forward, and attention_weights with a request for all rows, in one
// pass: the weights are taken as they are made, so scores and exponentials are
// computed once. out and options.log_sum_exp have the bits that
// attention_forward gives them; so have the weights those of attention_weights,
// but for weights below 1e-36, which may be zero in one and not in the other.
// request.rows must be empty. With Compute::kBFloat16 it is two passes: out is
// of bf16 compute, the weights are not.
template <typename Q>
void attention_with_weights(TensorView<Q, 4> q, detail::LikeQ<Q> k,
                            detail::LikeQ<Q> v, detail::OutLikeQ<Q> out,
                            const detail::RequestOf<Q>& request,
                            const detail::OptionsOf<Q>& options = {});

// At most 48 rows of weights of one batch entry and head.
template <typename Real>
struct WeightsBlock {
  std::int64_t batch = 0;                   // or the packed sequence
  std::int64_t head = 0;                    // 0 with OverHeads::kMean
  std::span<const std::int64_t> queries{};  // [rows]: which query each is
  TensorView<const Real, 2> weights{};      // [rows, kv_len]
};

// Hands all rows asked for to `visit`, block after block, in the calling thread
// and in order: batch entry by batch entry, in it head by head, in it row by
// row. So a [batch, heads, rows, kv_len] array can be written as it comes. The
// block is valid during the call only. Packed sequences have rows as long as
// their own keys, and rows in the order asked for within a sequence. Fills what
// else the request asks for. What `visit` throws comes out here.
template <typename Real>
using BasicWeightsVisitor = FunctionRef<void(const WeightsBlock<Real>&)>;
using WeightsVisitor = BasicWeightsVisitor<float>;
using WeightsVisitorF64 = BasicWeightsVisitor<double>;
using WeightsVisitorRef = FloatOrDouble<BasicWeightsVisitor>;
template <typename Q>
void stream_attention_weights(
    TensorView<Q, 4> q, detail::LikeQ<Q> k,
    std::type_identity_t<BasicWeightsVisitor<detail::RealOf<Q>>> visit,
    const detail::RequestOf<Q>& request = {},
    const detail::OptionsOf<Q>& options = {});

// The same where the types of elements are known at run time: requests,
// visitors and options in double for double and in float for all others.
void attention_weights(ConstUntypedView<4> q, ConstUntypedView<4> k,
                       WeightsRequestRef request, AttentionOptionsRef options);
void attention_with_weights(ConstUntypedView<4> q, ConstUntypedView<4> k,
                            ConstUntypedView<4> v, UntypedView<4> out,
                            WeightsRequestRef request,
                            AttentionOptionsRef options);
void stream_attention_weights(ConstUntypedView<4> q, ConstUntypedView<4> k,
                              WeightsVisitorRef visit,
                              WeightsRequestRef request,
                              AttentionOptionsRef options);

template <typename Q>
void attention_weights(TensorView<Q, 4> q, detail::LikeQ<Q> k,
                       const detail::RequestOf<Q>& request,
                       const detail::OptionsOf<Q>& options) {
  attention_weights(ConstUntypedView<4>(q), ConstUntypedView<4>(k),
                    WeightsRequestRef(request), AttentionOptionsRef(options));
}

template <typename Q>
void attention_weights(TensorView<Q, 4> q, detail::LikeQ<Q> k,
                       TensorView<detail::RealOf<Q>, 4> weights,
                       const detail::OptionsOf<Q>& options) {
  require(!weights.is_null() || q.size() == 0 || k.extent(2) == 0,
          "attention_weights", "weights must not be null");
  attention_weights(q, k, detail::RequestOf<Q>{.weights = weights}, options);
}

template <typename Q>
void attention_with_weights(TensorView<Q, 4> q, detail::LikeQ<Q> k,
                            detail::LikeQ<Q> v, detail::OutLikeQ<Q> out,
                            const detail::RequestOf<Q>& request,
                            const detail::OptionsOf<Q>& options) {
  attention_with_weights(ConstUntypedView<4>(q), ConstUntypedView<4>(k),
                         ConstUntypedView<4>(v), UntypedView<4>(out),
                         WeightsRequestRef(request),
                         AttentionOptionsRef(options));
}

template <typename Q>
void stream_attention_weights(
    TensorView<Q, 4> q, detail::LikeQ<Q> k,
    std::type_identity_t<BasicWeightsVisitor<detail::RealOf<Q>>> visit,
    const detail::RequestOf<Q>& request, const detail::OptionsOf<Q>& options) {
  stream_attention_weights(ConstUntypedView<4>(q), ConstUntypedView<4>(k),
                           WeightsVisitorRef(visit), WeightsRequestRef(request),
                           AttentionOptionsRef(options));
}

}  // namespace regard
