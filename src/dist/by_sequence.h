// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "regard/attention/attention.h"
#include "regard/dist/communicator.h"

namespace regard::dist {

// attention_forward of regard/dist/attention.h by sequence, for views that were
// checked: keys and values travel, in the order of the sequence.
void forward_by_sequence(Communicator& ranks, ConstUntypedView<4> q,
                         ConstUntypedView<4> k, ConstUntypedView<4> v,
                         UntypedView<4> out, std::int64_t q_len,
                         std::int64_t kv_len, const AttentionOptions& options);

}  // namespace regard::dist
