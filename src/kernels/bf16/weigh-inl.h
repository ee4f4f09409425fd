// SPDX-License-Identifier: Apache-2.0
// From scores to weights, for the files that are compiled for AVX-512. To be
// included where AVX-512 is switched on for all functions that follow.
#pragma once

#include <immintrin.h>

#include "kernels/bf16/paths.h"

#define REGARD_INLINE inline __attribute__((always_inline))

namespace regard::kernels {
namespace {

// 1 .. 2 and half a unit of bf16: the fraction's power.
REGARD_INLINE __m512 fraction_power(__m512 y) {
  const __m512 f = _mm512_reduce_ps(y, 1);  // y - floor(y)
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(kExp2Poly[3]), f,
                             _mm512_set1_ps(kExp2Poly[2]));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kExp2Poly[1]));
  return _mm512_fmadd_ps(p, f, _mm512_set1_ps(kExp2Poly[0]));
}

// The upper halves, which are bf16: a below b. One instruction: a moves down by
// two bytes into the lower halves of b.
REGARD_INLINE __m512i pair_up(__m512 a, __m512 b) {
  const __m512i low = _mm512_castps_si512(a);
  return _mm512_mask_alignr_epi8(_mm512_castps_si512(b), 0x3333333333333333u,
                                 low, low, 2);
}

// The weights of one row and a group of keys: 2^(scale * score).
REGARD_INLINE void weigh_row(const float* scores, float scale, void* weights) {
  const __m512 s = _mm512_set1_ps(scale);
  const __m512 a = _mm512_mul_ps(_mm512_load_ps(scores), s);
  const __m512 b = _mm512_mul_ps(_mm512_load_ps(scores + kTileFloats), s);
  _mm512_store_si512(weights, pair_up(_mm512_scalef_ps(fraction_power(a), a),
                                      _mm512_scalef_ps(fraction_power(b), b)));
}

}  // namespace
}  // namespace regard::kernels
