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
  detail::plain_weights(problem, weights);
}

}  // namespace regard
