// SPDX-License-Identifier: Apache-2.0
#include "kernels/bf16/avx512.h"

#if REGARD_BF16_X86

#include <immintrin.h>

#include "hwy/base.h"

// See bf16_avx512.cc: nothing from the standard library below.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace regard::kernels {
namespace {

constexpr int kRows = 8;  // of a register tile, with 32 keys or columns

void nothing() noexcept {}

inline __m512bh pair(const Bf16Bits* at) {
  int bits;
  __builtin_memcpy(&bits, at, sizeof(bits));
  return (__m512bh)_mm512_set1_epi32(bits);
}

inline __m512bh tile_row(const Bf16Bits* at) {
  return (__m512bh)_mm512_load_si512(at);
}

// sum[row][2] += left[row] * right, over the 16 pairs of one tile step. left
// is a tile of rows, right0 and right1 are tiles of pairs.
inline void multiply(const Bf16Bits* left, const Bf16Bits* right0,
                     const Bf16Bits* right1, __m512 (&sum)[kRows][2]) {
#pragma GCC unroll 16
  for (int p = 0; p < 16; ++p) {
    const __m512bh a = tile_row(right0 + p * 32);
    const __m512bh b = tile_row(right1 + p * 32);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512bh x = pair(left + r * 32 + 2 * p);
      sum[r][0] = _mm512_dpbf16_ps(sum[r][0], a, x);
      sum[r][1] = _mm512_dpbf16_ps(sum[r][1], b, x);
    }
  }
}

void score(const Bf16Head& head, const Bf16Strip& strip) noexcept {
  const int steps = head.key_steps;
  for (int slot = 0; slot < strip.slots; ++slot) {
    const Bf16Bits* const k0 =
        head.keys + strip.groups[slot] * 2 * steps * kTileBf16;
    const Bf16Bits* const k1 = k0 + steps * kTileBf16;
    for (int row = 0; row < strip.blocks * 16; row += kRows) {
      const Bf16Bits* const q =
          strip.queries + row / 16 * steps * kTileBf16 + row % 16 * 32;
      __m512 sum[kRows][2] = {};
      for (int step = 0; step < steps; ++step) {
        const int at = step * kTileBf16;
        multiply(q + at, k0 + at, k1 + at, sum);
      }
      float* const to = strip.scores + slot * kGroupFloats +
                        row / 16 * 2 * kTileFloats + row % 16 * 16;
      for (int r = 0; r < kRows; ++r) {
        _mm512_store_ps(to + r * 16, sum[r][0]);
        _mm512_store_ps(to + kTileFloats + r * 16, sum[r][1]);
      }
    }
  }
}

// `two`: value tiles `tile` and the next, else the same one twice.
inline void add_columns(const Bf16Head& head, const Bf16Strip& strip, int tile,
                        bool two) {
  const int next = two ? kTileBf16 : 0;
  for (int row = 0; row < strip.blocks * 16; row += kRows) {
    float* const o = strip.out +
                     (row / 16 * head.value_tiles + tile) * kTileFloats +
                     row % 16 * 16;
    __m512 sum[kRows][2];
    for (int r = 0; r < kRows; ++r) {
      sum[r][0] = _mm512_load_ps(o + r * 16);
      sum[r][1] =
          two ? _mm512_load_ps(o + kTileFloats + r * 16) : _mm512_setzero_ps();
    }
    for (int slot = 0; slot < strip.slots; ++slot) {
      const Bf16Bits* const w =
          weights_of(strip.scores, slot, row / 16) + row % 16 * 32;
      const Bf16Bits* const v =
          head.values +
          (strip.groups[slot] * head.value_tiles + tile) * kTileBf16;
      multiply(w, v, v + next, sum);
    }
    for (int r = 0; r < kRows; ++r) {
      _mm512_store_ps(o + r * 16, sum[r][0]);
      if (two) _mm512_store_ps(o + kTileFloats + r * 16, sum[r][1]);
    }
  }
}

void multiply_panels(const Bf16Product& p) noexcept {
  for (int row = 0; row < p.rows; row += kRows) {
    const Bf16Bits* left = p.left + row / kPanelRows * p.left_stride +
                           row / 16 % 2 * kTileBf16 + row % 16 * 32;
    const Bf16Bits* right = p.right;
    float* const to = p.sums + row / 16 * 2 * kTileFloats + row % 16 * 16;
    __m512 sum[kRows][2] = {};
    if (!p.from_zero) {
      for (int r = 0; r < kRows; ++r) {
        sum[r][0] = _mm512_load_ps(to + r * 16);
        sum[r][1] = _mm512_load_ps(to + kTileFloats + r * 16);
      }
    }
    for (int step = 0; step < p.steps; ++step) {
      multiply(left, right, right + kTileBf16, sum);
      left += 2 * kTileBf16;
      right += p.right_stride;
    }
    for (int r = 0; r < kRows; ++r) {
      _mm512_store_ps(to + r * 16, sum[r][0]);
      _mm512_store_ps(to + kTileFloats + r * 16, sum[r][1]);
    }
  }
}

// Slot after slot, each on its own, so that the slots of a call do not matter.
void add_sums(const Bf16Strip& strip) noexcept {
  const __m512bh ones = (__m512bh)_mm512_set1_epi32(0x3f803f80);
  for (int row = 0; row < strip.blocks * 16; ++row) {
    for (int slot = 0; slot < strip.slots; ++slot) {
      const Bf16Bits* const w = weights_of(strip.scores, slot, row / 16);
      const __m512 sum = _mm512_dpbf16_ps(_mm512_setzero_ps(),
                                          tile_row(w + row % 16 * 32), ones);
      strip.sums[row * 16] += _mm512_reduce_add_ps(sum);
    }
  }
}

void add_values(const Bf16Head& head, const Bf16Strip& strip) noexcept {
  const int last = head.value_tiles;
  int tile = 0;
  for (; tile + 2 <= last; tile += 2) add_columns(head, strip, tile, true);
  if (tile < last) add_columns(head, strip, tile, false);
}

}  // namespace
}  // namespace regard::kernels
HWY_POP_ATTRIBUTES

namespace regard::kernels {

const Bf16Functions* bf16_dot_functions() {
  static constexpr Bf16Functions kFunctions{
      .begin = nothing,
      .end = nothing,
      .pack_keys = avx512::pack_keys,
      .pack_values = avx512::pack_values,
      .score = score,
      .weigh = avx512::weigh,
      .weigh_below = avx512::weigh_below,
      .add_sums = add_sums,
      .add_values = add_values,
      .multiply = multiply_panels,
      .carries = false,
      .add_full = nullptr,
  };
  return &kFunctions;
}

}  // namespace regard::kernels

#else

namespace regard::kernels {

const Bf16Functions* bf16_dot_functions() { return nullptr; }

}  // namespace regard::kernels

#endif  // REGARD_BF16_X86
