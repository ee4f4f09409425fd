// SPDX-License-Identifier: Apache-2.0
#include "regard/attention/weights.h"

#include "attention/plain.h"
#include "attention/problem.h"

namespace regard {

void attention_weights(TensorView<const float, 4> q,
                       TensorView<const float, 4> k,
                       TensorView<float, 4> weights,
                       const AttentionOptions& options) {
  const char* where = "attention_weights";
  const detail::Problem<float> problem(q, k, {}, options, where);
  require(!problem.packed, where, "packed sequences are not supported");
  require(
      weights.extent(0) == q.extent(0) && weights.extent(1) == q.extent(1) &&
          weights.extent(2) == q.extent(2) && weights.extent(3) == k.extent(2),
      where, "weights must be [batch, heads, q_len, kv_len]; weights is ",
      to_string(weights.shape()), ", q is ", to_string(q.shape()), ", k is ",
      to_string(k.shape()));
  for (std::int64_t b = 0; b < problem.entries; ++b) {
    const BoundMask mask(options.mask, problem.mask_sizes(b), where);
    parallel_for(options.threads, problem.heads * q.extent(2),
                 [&](std::int64_t task) {
                   const std::int64_t head = task / q.extent(2);
                   const std::int64_t query = task % q.extent(2);
                   detail::plain_weights(problem, {mask, b, head, query},
                                         weights.at(b, head, query));
                 });
  }
}

}  // namespace regard
