// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "regard/attention/attention.h"
#include "regard/attention/backward.h"
#include "regard/dist/communicator.h"

namespace regard::dist {

// Of the whole sequence.
struct SequenceLengths {
  std::int64_t queries, keys;
};

// Refuses what is not computed by sequence, in the name of `where`.
void check_by_sequence(const AttentionOptions& options, const char* where);

// attention_forward of regard/dist/attention.h by sequence, for views that were
// checked: keys and values travel, in the order of the sequence.
void forward_by_sequence(Communicator& ranks, ConstUntypedView<4> q,
                         ConstUntypedView<4> k, ConstUntypedView<4> v,
                         UntypedView<4> out, const SequenceLengths& lengths,
                         const AttentionOptions& options);

// And attention_backward: keys and values travel, then queries and what belongs
// to them.
void backward_by_sequence(Communicator& ranks,
                          const UntypedBackwardInputs& inputs,
                          const UntypedGradients& gradients,
                          const SequenceLengths& lengths,
                          const AttentionOptions& options);

}  // namespace regard::dist
