// SPDX-License-Identifier: Apache-2.0
// Included once for each target; no include guard of the usual kind.
#if defined(REGARD_KERNELS_QUANTISED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_QUANTISED_INL_H_
#undef REGARD_KERNELS_QUANTISED_INL_H_
#else
#define REGARD_KERNELS_QUANTISED_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "kernels/quantised.h"
#include "regard/core/float16.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kColumns = static_cast<int>(kQuantisedColumns);

// The operations on 16 columns that a tile consists of, on each target.
// add_products(w, x): for each column the sum of its four codes times those of
// x. Sums of 16 bits hold the products of a group of 4-bit codes.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
#if HWY_TARGET == HWY_AVX2
constexpr int kParts = 2;
using Ints = __m256i;
using Floats = __m256;
HWY_INLINE Ints zero_ints() { return _mm256_setzero_si256(); }
HWY_INLINE Ints load_codes(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const Ints*>(at));
}
HWY_INLINE Ints broadcast_four(const std::byte* at) {
  std::int32_t four;
  std::memcpy(&four, at, sizeof four);
  return _mm256_set1_epi32(four);
}
HWY_INLINE Ints low_halves(Ints codes) {
  return _mm256_and_si256(codes, _mm256_set1_epi8(15));
}
HWY_INLINE Ints high_halves(Ints codes) {
  return low_halves(_mm256_srli_epi16(codes, 4));
}
HWY_INLINE Ints magnitudes(Ints codes) { return _mm256_abs_epi8(codes); }
HWY_INLINE Ints with_signs_of(Ints x, Ints codes) {
  return _mm256_sign_epi8(x, codes);
}
HWY_INLINE Ints pair_products(Ints magnitude, Ints x) {
  return _mm256_maddubs_epi16(magnitude, x);
}
// Written out and in this order: the compiler would begin all rows of a tile at
// once, and sums would wait in memory for want of registers.
HWY_INLINE void add_to_16(Ints& sum, Ints x) {
  asm volatile("vpaddw %1, %0, %0" : "+x"(sum) : "x"(x));
}
HWY_INLINE void add_to_32(Ints& sum, Ints x) {
  asm volatile("vpaddd %1, %0, %0" : "+x"(sum) : "x"(x));
}
HWY_INLINE Ints pair_sums(Ints products) {
  return _mm256_madd_epi16(products, _mm256_set1_epi16(1));
}
HWY_INLINE Floats to_floats(Ints x) { return _mm256_cvtepi32_ps(x); }
HWY_INLINE Floats zero_floats() { return _mm256_setzero_ps(); }
HWY_INLINE Floats broadcast(float x) { return _mm256_set1_ps(x); }
HWY_INLINE Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
HWY_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
  return _mm256_fmadd_ps(a, b, c);
}
HWY_INLINE void store(Floats x, float* to) { _mm256_storeu_ps(to, x); }
template <ScaleType kType>
HWY_INLINE Floats load_scales(const std::byte* at, int part) {
  if constexpr (kType == ScaleType::kFloat16) {
    return _mm256_cvtph_ps(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 16 * part)));
  } else {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(at + 32 * part));
  }
}
#else
constexpr int kParts = 1;
using Ints = __m512i;
using Floats = __m512;
HWY_INLINE Ints zero_ints() { return _mm512_setzero_si512(); }
HWY_INLINE Ints load_codes(const std::byte* at) {
  return _mm512_loadu_si512(at);
}
HWY_INLINE Ints broadcast_four(const std::byte* at) {
  std::int32_t four;
  std::memcpy(&four, at, sizeof four);
  return _mm512_set1_epi32(four);
}
HWY_INLINE Ints low_halves(Ints codes) {
  return _mm512_and_si512(codes, _mm512_set1_epi8(15));
}
HWY_INLINE Ints high_halves(Ints codes) {
  return low_halves(_mm512_srli_epi16(codes, 4));
}
HWY_INLINE Ints magnitudes(Ints codes) { return _mm512_abs_epi8(codes); }
HWY_INLINE Ints with_signs_of(Ints x, Ints codes) {
  return _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(codes), zero_ints(), x);
}
HWY_INLINE Ints pair_products(Ints magnitude, Ints x) {
  return _mm512_maddubs_epi16(magnitude, x);
}
HWY_INLINE void add_to_16(Ints& sum, Ints x) { sum = _mm512_add_epi16(sum, x); }
HWY_INLINE void add_to_32(Ints& sum, Ints x) { sum = _mm512_add_epi32(sum, x); }
HWY_INLINE Ints pair_sums(Ints products) {
  return _mm512_madd_epi16(products, _mm512_set1_epi16(1));
}
HWY_INLINE Floats to_floats(Ints x) { return _mm512_cvtepi32_ps(x); }
HWY_INLINE Floats zero_floats() { return _mm512_setzero_ps(); }
HWY_INLINE Floats broadcast(float x) { return _mm512_set1_ps(x); }
HWY_INLINE Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
HWY_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
  return _mm512_fmadd_ps(a, b, c);
}
HWY_INLINE void store(Floats x, float* to) { _mm512_storeu_ps(to, x); }
template <ScaleType kType>
HWY_INLINE Floats load_scales(const std::byte* at, int) {
  if constexpr (kType == ScaleType::kFloat16) {
    return _mm512_cvtph_ps(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  } else {
    return _mm512_loadu_ps(at);
  }
}
#endif

constexpr std::size_t kPartBytes = sizeof(Ints);
constexpr int kPartColumns = kColumns / kParts;

// The integer sums of one group; rows of x are row_bytes apart.
template <int kRows, CodeBits kBits>
HWY_INLINE void sum_group(const std::byte* HWY_RESTRICT codes,
                          std::int64_t group, const std::byte* HWY_RESTRICT x,
                          std::size_t row_bytes, Ints (&sum)[kRows][kParts]) {
  if constexpr (kBits == CodeBits::k7) {
    for (std::int64_t i = 0; i < group; i += 4) {
      Ints code[kParts];
      HWY_UNROLL(2)
      for (int p = 0; p < kParts; ++p) {
        code[p] = load_codes(codes + p * kPartBytes);
      }
      HWY_UNROLL(4)
      for (int r = 0; r < kRows; ++r) {
        const Ints four = broadcast_four(x + r * row_bytes);
        HWY_UNROLL(2)
        for (int p = 0; p < kParts; ++p) {
          // At most 2 * 127 * 127: within 16 bits.
          add_to_32(sum[r][p], pair_sums(pair_products(code[p], four)));
        }
      }
      codes += kParts * kPartBytes;
      x += 4;
    }
  } else if constexpr (kBits == CodeBits::k4) {
    // 8 steps of at most 2 * 15 * 127 stay within 16 bits.
    for (std::int64_t i = 0; i < group; i += 8) {
      Ints low[kParts], high[kParts];
      HWY_UNROLL(2)
      for (int p = 0; p < kParts; ++p) {
        const Ints both = load_codes(codes + p * kPartBytes);
        low[p] = low_halves(both);
        high[p] = high_halves(both);
      }
      HWY_UNROLL(4)
      for (int r = 0; r < kRows; ++r) {
        const Ints even = broadcast_four(x + r * row_bytes);
        const Ints odd = broadcast_four(x + r * row_bytes + 4);
        HWY_UNROLL(2)
        for (int p = 0; p < kParts; ++p) {
          add_to_16(sum[r][p], pair_products(low[p], even));
          add_to_16(sum[r][p], pair_products(high[p], odd));
        }
      }
      codes += kParts * kPartBytes;
      x += 8;
    }
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(2)
      for (int p = 0; p < kParts; ++p) sum[r][p] = pair_sums(sum[r][p]);
    }
  } else {
    for (std::int64_t i = 0; i < group; i += 4) {
      Ints code[kParts], magnitude[kParts];
      HWY_UNROLL(2)
      for (int p = 0; p < kParts; ++p) {
        code[p] = load_codes(codes + p * kPartBytes);
        magnitude[p] = magnitudes(code[p]);
      }
      HWY_UNROLL(4)
      for (int r = 0; r < kRows; ++r) {
        const Ints four = broadcast_four(x + r * row_bytes);
        HWY_UNROLL(2)
        for (int p = 0; p < kParts; ++p) {
          // At most 2 * 128 * 127: within 16 bits.
          const Ints products =
              pair_products(magnitude[p], with_signs_of(four, code[p]));
          add_to_32(sum[r][p], pair_sums(products));
        }
      }
      codes += kParts * kPartBytes;
      x += 4;
    }
  }
}

template <int kRows, CodeBits kBits, ScaleType kScales, bool kMinima>
HWY_INLINE void quantised_tile(const QuantisedLayout& layout,
                               const std::byte* panel, const std::byte* a,
                               float (*c)[kColumns]) {
  const std::int64_t groups = layout.groups();
  const std::size_t scale_bytes = layout.scale_bytes();
  const std::size_t group_bytes = layout.group_bytes();
  const std::size_t row_bytes = rounded_row_bytes(layout);
  const auto row_floats = static_cast<std::int64_t>(row_bytes / sizeof(float));
  Floats total[kRows][kParts];
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (int p = 0; p < kParts; ++p) total[r][p] = zero_floats();
  }
  const auto* scales = reinterpret_cast<const float*>(a);
  const std::byte* x = a + groups *
                               (rounded_row_has_sums(kBits, kMinima) ? 2 : 1) *
                               sizeof(float);
  for (std::int64_t g = 0; g < groups; ++g, panel += group_bytes) {
    Ints sum[kRows][kParts];
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(2)
      for (int p = 0; p < kParts; ++p) {
        sum[r][p] = kBits == CodeBits::k7
                        ? broadcast_four(a + r * row_bytes +
                                         (groups + g) * sizeof(float))
                        : zero_ints();
      }
    }
    sum_group<kRows, kBits>(panel + (kMinima ? 2 : 1) * scale_bytes,
                            layout.group, x, row_bytes, sum);
    x += layout.group;
    HWY_UNROLL(2)
    for (int p = 0; p < kParts; ++p) {
      const Floats scale = load_scales<kScales>(panel, p);
      HWY_UNROLL(4)
      for (int r = 0; r < kRows; ++r) {
        const Floats factor =
            multiply(scale, broadcast(scales[r * row_floats + g]));
        total[r][p] = multiply_add(to_floats(sum[r][p]), factor, total[r][p]);
      }
      if constexpr (kMinima) {
        const Floats minimum = load_scales<kScales>(panel + scale_bytes, p);
        HWY_UNROLL(4)
        for (int r = 0; r < kRows; ++r) {
          total[r][p] = multiply_add(
              minimum, broadcast(scales[r * row_floats + groups + g]),
              total[r][p]);
        }
      }
    }
  }
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (int p = 0; p < kParts; ++p) {
      store(total[r][p], c[r] + p * kPartColumns);
    }
  }
}

#else  // any other target: the definition, column by column

template <ScaleType kType>
HWY_INLINE float scale_at(const std::byte* at, int column) {
  if constexpr (kType == ScaleType::kFloat16) {
    Float16 half;
    std::memcpy(&half.bits, at + 2 * column, 2);
    return static_cast<float>(half);
  } else {
    float scale;
    std::memcpy(&scale, at + 4 * column, 4);
    return scale;
  }
}

template <CodeBits kBits>
HWY_INLINE int code_at(const std::byte* codes, std::int64_t i, int column) {
  const std::int64_t step = i / 4;
  const std::int64_t inside = column * 4 + i % 4;
  if constexpr (kBits == CodeBits::k4) {
    const int both = static_cast<int>(codes[step / 2 * 4 * kColumns + inside]);
    return step % 2 == 0 ? both & 15 : both >> 4;
  } else {
    return static_cast<std::int8_t>(codes[step * 4 * kColumns + inside]) -
           (kBits == CodeBits::k7 ? 64 : 0);
  }
}

template <int kRows, CodeBits kBits, ScaleType kScales, bool kMinima>
HWY_INLINE void quantised_tile(const QuantisedLayout& layout,
                               const std::byte* panel, const std::byte* a,
                               float (*c)[kColumns]) {
  const std::int64_t groups = layout.groups();
  const std::size_t scale_bytes = layout.scale_bytes();
  for (int r = 0; r < kRows; ++r, a += rounded_row_bytes(layout)) {
    const auto* const scales = reinterpret_cast<const float*>(a);
    const auto* const x = reinterpret_cast<const std::int8_t*>(
        scales + groups * (rounded_row_has_sums(kBits, kMinima) ? 2 : 1));
    for (int column = 0; column < kColumns; ++column) {
      float total = 0.0f;
      const std::byte* at = panel;
      for (std::int64_t g = 0; g < groups; ++g, at += layout.group_bytes()) {
        const std::byte* const codes = at + (kMinima ? 2 : 1) * scale_bytes;
        std::int32_t sum = 0;
        for (std::int64_t i = 0; i < layout.group; ++i) {
          sum += code_at<kBits>(codes, i, column) * x[g * layout.group + i];
        }
        const float factor = scale_at<kScales>(at, column) * scales[g];
        total = std::fma(static_cast<float>(sum), factor, total);
        if (kMinima) {
          total = std::fma(scale_at<kScales>(at + scale_bytes, column),
                           scales[groups + g], total);
        }
      }
      c[r][column] = total;
    }
  }
}
#endif

// All rows over all panels: a panel stays in the cache while the rows pass.
template <CodeBits kBits, ScaleType kScales, bool kMinima>
HWY_NOINLINE void quantised_panels(const QuantisedGemm& job) {
  const QuantisedLayout& layout = *job.layout;
  const std::size_t row_bytes = rounded_row_bytes(layout);
  const std::byte* panel = job.b;
  for (std::int64_t column = 0; column < job.n;
       column += kColumns, panel += layout.panel_bytes()) {
    const std::int64_t columns =
        std::min<std::int64_t>(kColumns, job.n - column);
    for (std::int64_t row = 0; row < job.m; row += kQuantisedRows) {
      HWY_ALIGN float c[kQuantisedRows][kColumns];
      const std::byte* const a =
          job.a + static_cast<std::size_t>(row) * row_bytes;
      const std::int64_t rows = std::min(kQuantisedRows, job.m - row);
      switch (rows) {
        case 1:
          quantised_tile<1, kBits, kScales, kMinima>(layout, panel, a, c);
          break;
        case 2:
          quantised_tile<2, kBits, kScales, kMinima>(layout, panel, a, c);
          break;
        case 3:
          quantised_tile<3, kBits, kScales, kMinima>(layout, panel, a, c);
          break;
        default:
          quantised_tile<4, kBits, kScales, kMinima>(layout, panel, a, c);
          break;
      }
      for (std::int64_t r = 0; r < rows; ++r) {
        float* const to = job.c + (row + r) * job.c_stride + column;
        for (std::int64_t j = 0; j < columns; ++j) {
          to[j] =
              job.bias == nullptr ? c[r][j] : c[r][j] + job.bias[column + j];
        }
      }
    }
  }
}

// The largest magnitude of some numbers; NaN or infinity where they have one.
HWY_INLINE float largest_of(const float* HWY_RESTRICT x, std::int64_t count) {
  const hn::CappedTag<float, 16> d;
  const hn::Rebind<std::int32_t, decltype(d)> di;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // As integers, magnitudes are in order, and those of NaN come last.
  auto most = hn::Zero(di);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    most = hn::Max(most, hn::BitCast(di, hn::Abs(hn::LoadU(d, x + i))));
  }
  std::int32_t bits = hn::GetLane(hn::MaxOfLanes(di, most));
  for (; i < count; ++i) {
    bits = std::max(bits, std::bit_cast<std::int32_t>(std::abs(x[i])));
  }
  return std::bit_cast<float>(bits);
}

// codes = x * factor, rounded to the nearest, ties to even; returns their sum.
HWY_INLINE std::int32_t round_group(const float* HWY_RESTRICT x,
                                    std::int64_t count, float factor,
                                    std::int8_t* HWY_RESTRICT codes) {
  const hn::CappedTag<float, 16> d;
  const hn::Rebind<std::int32_t, decltype(d)> di;
  const hn::Rebind<std::int8_t, decltype(d)> d8;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sums = hn::Zero(di);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto code =
        hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)));
    hn::StoreU(hn::DemoteTo(d8, code), d8, codes + i);
    sums = hn::Add(sums, code);
  }
  std::int32_t sum = hn::GetLane(hn::SumOfLanes(di, sums));
  for (; i < count; ++i) {
    // Adding and taking away 1.5 * 2^23 rounds in the same way.
    constexpr float kRound = 12582912.0f;
    const float code = (x[i] * factor + kRound) - kRound;
    codes[i] = static_cast<std::int8_t>(code);
    sum += static_cast<std::int32_t>(code);
  }
  return sum;
}

// Some groups at a time, so that their divisions overlap.
HWY_INLINE void round_row(const RoundedRow& row) {
  constexpr int kTogether = 16;
  const std::int64_t groups = (row.k + row.group - 1) / row.group;
  for (std::int64_t first = 0; first < groups; first += kTogether) {
    const int count =
        static_cast<int>(std::min<std::int64_t>(kTogether, groups - first));
    float* const scales = row.scales + first;
    float factors[kTogether];
    for (int i = 0; i < count; ++i) {
      const std::int64_t begin = (first + i) * row.group;
      const float largest =
          largest_of(row.x + begin, std::min(row.group, row.k - begin));
      // Below this 127 / largest is no float; such numbers count as zero.
      constexpr float kLeast = 0x1p-119f;
      const bool finite = largest <= std::numeric_limits<float>::max();
      const bool counts = finite && largest >= kLeast;
      factors[i] = counts ? row.most / largest : 0.0f;
      scales[i] = counts   ? largest / row.most
                  : finite ? 0.0f
                           : std::numeric_limits<float>::quiet_NaN();
    }
    for (int i = 0; i < count; ++i) {
      const std::int64_t begin = (first + i) * row.group;
      const std::int64_t size = std::min(row.group, row.k - begin);
      std::int32_t sum = 0;
      if (factors[i] != 0) {
        sum = round_group(row.x + begin, size, factors[i], row.codes + begin);
      } else {
        std::fill_n(row.codes + begin, size, std::int8_t{0});
      }
      if (row.sums == nullptr) continue;
      if (row.bits == CodeBits::k7) {
        sum *= -64;
        std::memcpy(row.sums + first + i, &sum, sizeof sum);
      } else {
        row.sums[first + i] = scales[i] * static_cast<float>(sum);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // REGARD_KERNELS_QUANTISED_INL_H_
