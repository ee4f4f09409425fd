// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace regard::kernels {

// From natural logarithms to those of base 2, in which scores are, and back.
inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr double kLn2 = 0.69314718055994530942;

}  // namespace regard::kernels
