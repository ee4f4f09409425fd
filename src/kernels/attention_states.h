// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/attention_forward.h"

// attention_forward_block where keys come one part after the other.
namespace regard::kernels {

// Adds the splits [first, last) to `state`, of attention_state_floats(), which
// it writes anew unless `started`. The ranges of the block's rows must lie
// within the keys that are there. skip_zeros: values whose weight is zero are
// not multiplied, so that what is not finite reaches no row that does not see
// it; slow.
void attention_add_splits(const AttentionBlock& block, std::int64_t first,
                          std::int64_t last, float* state, bool started,
                          bool skip_zeros) noexcept;

// After the last split: writes out and lse. False if something was not finite:
// then all must be done again with skip_zeros.
bool attention_finish(const AttentionBlock& block, float* state) noexcept;

}  // namespace regard::kernels
