// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace regard {

// The SIMD targets that this library was built for and this machine can run,
// best first: "AVX3" (AVX-512), "AVX2", "NEON", "EMU128" (portable code).
std::vector<std::string> simd_targets();

// The one in use: the best, unless another was chosen.
std::string simd_target();

// Uses one of simd_targets() from now on, "" for the best again. For tests and
// benchmarks: call it while nothing else of regard runs. Throws InvalidArgument
// for a name that is not in the list.
void set_simd_target(const std::string& name);

}  // namespace regard
