// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/bf16/paths.h"

// Whether the compiler can make AVX-512, AVX512-BF16 and AMX code for single
// functions. Which processor runs it is asked at run time: kernels/bf16/cpu.h.
// A build for a machine without them leaves them out (REGARD_NATIVE).
#if defined(REGARD_BF16_X86)
#elif defined(__x86_64__) && (defined(__clang__) || defined(__GNUC__))
#define REGARD_BF16_X86 1
#else
#define REGARD_BF16_X86 0
#endif

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes its own _mm512_undefined_epi32() for a mistake of ours.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#if REGARD_BF16_X86
namespace regard::kernels::avx512 {

// The steps of Bf16Functions that need AVX-512 (F, BW, DQ, VL) and no bf16
// instruction: both AMX and VDPBF16PS use them.
void pack_keys(const Bf16Bits* const* rows, int steps, Bf16Bits* to,
               std::int64_t stride, float* norms) noexcept;
bool pack_values(const Bf16Bits* const* rows, int tiles, Bf16Bits* to) noexcept;
void weigh(const Bf16Head& head, const Bf16Strip& strip) noexcept;
void weigh_below(const Bf16Strip& strip) noexcept;

}  // namespace regard::kernels::avx512
#endif
