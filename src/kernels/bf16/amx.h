// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/bf16/avx512.h"

#if REGARD_BF16_X86

// The tile intrinsics do not tell the compiler that they touch memory, so a
// vector's store could be moved behind the tile's load that wants it.
#define REGARD_FENCE asm volatile("" ::: "memory")

namespace regard::kernels {

// A row of a tile of ones, which turns the product into a sum.
alignas(64) inline constexpr std::uint32_t kBf16Ones[16] = {
    0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80,
    0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80,
    0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};

// Bf16Functions::add_full.
bool amx_add_full(const Bf16Head& head, const Bf16Strip& strip,
                  std::int64_t first, std::int64_t last) noexcept;

}  // namespace regard::kernels
#endif
