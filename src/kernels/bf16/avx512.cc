// SPDX-License-Identifier: Apache-2.0
#include "kernels/bf16/avx512.h"

#if REGARD_BF16_X86

#include <immintrin.h>

#include <cstring>

#include "hwy/base.h"

// Nothing from the standard library may be called below: an inline function of
// it that is compiled for AVX-512 could be the one that others link.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl")
#include "kernels/bf16/weigh-inl.h"
namespace regard::kernels::avx512 {
namespace {

// r[i][j] <-> r[j][i], 16 x 16 words of 32 bits.
REGARD_INLINE void transpose(__m512i* r) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

REGARD_INLINE void weigh_row_shown(float* scores, float scale,
                                   std::uint32_t visible) {
  const __m512 s = _mm512_set1_ps(scale);
  const __m512 a = _mm512_mul_ps(_mm512_load_ps(scores), s);
  const __m512 b = _mm512_mul_ps(_mm512_load_ps(scores + kTileFloats), s);
  const auto low = static_cast<__mmask16>(visible);
  const auto high = static_cast<__mmask16>(visible >> 16);
  _mm512_store_si512(
      scores, pair_up(_mm512_maskz_scalef_ps(low, fraction_power(a), a),
                      _mm512_maskz_scalef_ps(high, fraction_power(b), b)));
}

// 2^(y - m). The power of the fraction does not know m, so neither do the
// bits of a weight, but for its exponent.
REGARD_INLINE __m512 power_below(__m512 y, __m512 m) {
  const __m512 floor = _mm512_roundscale_ps(y, 1);
  return _mm512_scalef_ps(fraction_power(y), _mm512_sub_ps(floor, m));
}

}  // namespace

void pack_keys(const Bf16Bits* const* rows, int steps, Bf16Bits* to,
               std::int64_t stride, float* norms) noexcept {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  __m512 squares = _mm512_setzero_ps();
  for (int step = 0; step < steps; ++step) {
    __m512i r[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      r[i] = _mm512_loadu_si512(rows[i] + step * 32);
    }
    transpose(r);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(r[i], 16));
      const __m512 odd = _mm512_castsi512_ps(_mm512_and_si512(r[i], upper));
      squares = _mm512_fmadd_ps(even, even, squares);
      squares = _mm512_fmadd_ps(odd, odd, squares);
      _mm512_store_si512(to + step * stride + i * 32, r[i]);
    }
  }
  _mm512_storeu_ps(norms, _mm512_sqrt_ps(squares));
}

bool pack_values(const Bf16Bits* const* rows, int tiles,
                 Bf16Bits* to) noexcept {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  __mmask32 non_finite = 0;  // an exponent of all ones: infinite or NaN
  for (int p = 0; p < 16; ++p) {
    for (int tile = 0; tile < tiles; ++tile) {
      const __m256i low = _mm256_loadu_si256(
          reinterpret_cast<const __m256i*>(rows[p] + tile * 16));
      const __m256i high = _mm256_loadu_si256(
          reinterpret_cast<const __m256i*>(rows[p + 16] + tile * 16));
      const __m512i both =
          _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                          _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
      non_finite |=
          _mm512_cmpeq_epi16_mask(_mm512_and_si512(both, exponent), exponent);
      _mm512_store_si512(to + tile * kTileBf16 + p * 32, both);
    }
  }
  return non_finite == 0;
}

void weigh(const Bf16Head&, const Bf16Strip& strip) noexcept {
  for (int slot = 0; slot < strip.slots; ++slot) {
    for (int block = 0; block < strip.blocks; ++block) {
      float* const s =
          strip.scores + slot * kGroupFloats + block * 2 * kTileFloats;
      const float* const scale = strip.scale + block * 16;
      const std::uint32_t* const visible =
          strip.visible + slot * kStripRows + block * 16;
      switch (strip.shown[slot][block]) {
        case Shown::kAll:
#pragma GCC unroll 4
          for (int r = 0; r < 16; ++r)
            weigh_row(s + r * 16, scale[r], s + r * 16);
          break;
        case Shown::kSome:
#pragma GCC unroll 4
          for (int r = 0; r < 16; ++r) {
            weigh_row_shown(s + r * 16, scale[r], visible[r]);
          }
          break;
        case Shown::kNone:
          std::memset(s, 0, sizeof(float) * kTileFloats);
          break;
      }
    }
  }
}

void weigh_below(const Bf16Strip& strip) noexcept {
  for (int slot = 0; slot < strip.slots; ++slot) {
    for (int block = 0; block < strip.blocks; ++block) {
      float* const s =
          strip.scores + slot * kGroupFloats + block * 2 * kTileFloats;
      if (strip.shown[slot][block] == Shown::kNone) {
        std::memset(s, 0, sizeof(float) * kTileFloats);
        continue;
      }
#pragma GCC unroll 4
      for (int r = 0; r < 16; ++r) {
        const __m512 m = _mm512_set1_ps(strip.max[block * 16 + r]);
        const __m512 a = _mm512_load_ps(s + r * 16);
        const __m512 b = _mm512_load_ps(s + kTileFloats + r * 16);
        _mm512_store_si512(s + r * 16,
                           pair_up(power_below(a, m), power_below(b, m)));
      }
    }
  }
}

}  // namespace regard::kernels::avx512
HWY_POP_ATTRIBUTES

#endif  // REGARD_BF16_X86
