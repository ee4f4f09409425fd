// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "dist/by_sequence.h"
#include "regard/attention/attention.h"
#include "regard/attention/backward.h"
#include "regard/dist/communicator.h"

namespace regard::dist {

// Which key-value heads a rank works on, one group after the other: the next
// one travels, and the results of the one before, while it computes.
class HeadGroups {
 public:
  HeadGroups(std::int64_t kv_heads, int ranks, std::int64_t q_len);
  int count() const { return count_; }
  Part kv_heads(int rank, int group) const;

 private:
  std::int64_t kv_heads_;
  int ranks_, count_;
};

// attention_forward of regard/dist/attention.h by heads, for views that were
// checked.
void forward_by_heads(Communicator& ranks, ConstUntypedView<4> q,
                      ConstUntypedView<4> k, ConstUntypedView<4> v,
                      UntypedView<4> out, const SequenceLengths& lengths,
                      const AttentionOptions& options);

// And attention_backward.
void backward_by_heads(Communicator& ranks, const UntypedBackwardInputs& inputs,
                       const UntypedGradients& gradients,
                       const SequenceLengths& lengths,
                       const AttentionOptions& options);

}  // namespace regard::dist
