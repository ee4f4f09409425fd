// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "ops/rows.h"
#include "regard/tasks/text_encoder.h"

namespace regard::tasks {

// y [width] = the vectors of a text's tokens, [tokens, width], as one; zeros
// where there are none.
void pool_tokens(Pooling pooling, ops::ConstRows x, float* y);

// y / max(|y|, 1e-12)
void normalize(std::span<float> y);

}  // namespace regard::tasks
