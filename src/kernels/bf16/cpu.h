// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace regard::kernels {

// The ways to multiply bf16 numbers and add in fp32. All mean the same; bits
// differ, because each adds in an order of its own.
enum class Bf16Path {
  kAmx,       // tiles, TDPBF16PS
  kDot,       // AVX512-BF16, VDPBF16PS
  kPortable,  // fp32 multiply-adds, on any SIMD target
};

// Whether the processor has it, the operating system saves its registers (XCR0)
// and, for tiles, Linux permits this process to use them. Asked once.
bool bf16_path_available(Bf16Path path);

// The one in use: the fastest, unless another was chosen.
Bf16Path bf16_path();

// For tests and benchmarks, while nothing else of regard runs. False, and
// nothing changes, if the path is not available.
bool choose_bf16_path(Bf16Path path);
void choose_best_bf16_path();

}  // namespace regard::kernels
