// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "regard/ops/activation.h"

namespace regard::ops {

// y = f(x), for a gated f the function of its gate. y may be x. With kNone
// nothing is done.
void activate(Activation f, const float* x, std::int64_t n, float* y);

// y = f(gate) * up; y may be one of them.
void activate_gated(Activation f, const float* gate, const float* up,
                    std::int64_t n, float* y);

// d_x = d_y * f'(x). d_x may be d_y or x.
void activate_backward(Activation f, const float* x, const float* d_y,
                       std::int64_t n, float* d_x);

// The gradients of both. All six lie apart, or d_gate is gate and d_up is up.
void activate_gated_backward(Activation f, const float* gate, const float* up,
                             const float* d_y, std::int64_t n, float* d_gate,
                             float* d_up);

}  // namespace regard::ops
