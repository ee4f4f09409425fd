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
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/quantised.h"
#include "regard/core/float16.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kColumns = static_cast<int>(kQuantisedColumns);

// What a layout says, worked out once for all tiles: its divisions cost as much
// as a group does.
struct TileLayout {
  explicit TileLayout(const QuantisedLayout& layout)
      : row(layout),
        groups(layout.groups()),
        group(layout.group),
        scale_bytes(layout.scale_bytes()),
        group_bytes(layout.group_bytes()),
        panel_bytes(layout.panel_bytes()) {}
  RoundedRowLayout row;
  std::int64_t groups, group;
  std::size_t scale_bytes, group_bytes, panel_bytes;
};

// What a group has beside its codes. Asked for each group where codes have 8
// bits, which costs nothing: tiles of their own would be four times the code.
// Groups of 4 bits are so short that asking costs a tenth.
struct AnyForm {
  explicit AnyForm(const QuantisedLayout& layout)
      : half_scales(layout.scales == ScaleType::kFloat16),
        has_minima(layout.has_minima) {}
  bool half_scales, has_minima;
};
template <bool kHalfScales, bool kHasMinima>
struct FixedForm {
  explicit FixedForm(const QuantisedLayout&) {}
  static constexpr bool half_scales = kHalfScales, has_minima = kHasMinima;
};

// The operations on 16 columns that a tile consists of, on each target.
// Codes of 8 bits are widened to 16 and meet two inputs of 16 bits of a column
// at a time; codes of 4 bits meet four inputs of 8 bits.
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
HWY_INLINE Ints load_widened(const std::byte* at) {
  return _mm256_cvtepi8_epi16(
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
// sum += codes of 4 bits times x, in this order as add_wide_products below.
// The sums have 16 bits here.
template <bool kVnni>
HWY_INLINE void add_narrow_products(Ints codes, Ints x, Ints& sum) {
  Ints now = sum;
  asm volatile("vpaddw %1, %0, %0"
               : "+x"(now)
               : "x"(_mm256_maddubs_epi16(codes, x)));
  sum = now;
}
template <bool kVnni>
HWY_INLINE Ints widened_sums(Ints sums) {
  return _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
}
HWY_INLINE Floats to_floats(Ints x) { return _mm256_cvtepi32_ps(x); }
HWY_INLINE Floats zero_floats() { return _mm256_setzero_ps(); }
HWY_INLINE Floats broadcast(float x) { return _mm256_set1_ps(x); }
HWY_INLINE Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
HWY_INLINE Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
HWY_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
  return _mm256_fmadd_ps(a, b, c);
}
HWY_INLINE void store(Floats x, float* to) { _mm256_storeu_ps(to, x); }
HWY_INLINE Floats load_floats(const float* at) { return _mm256_loadu_ps(at); }
HWY_INLINE Floats load_halves(const std::byte* at) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
// sum[p] += pairs of x times pairs of codes, x being kOffset bytes into row
// kRow of a tile. Written out and in this order: the compiler would begin all
// rows at once, and sums would wait in memory for want of registers. They
// would, too, if an element of an array were the operand itself. Of three rows
// each all addresses have two registers.
template <int kRow, int kOffset>
HWY_INLINE void add_wide_products(const Ints (&codes)[kParts],
                                  const std::byte* x, std::size_t row_bytes,
                                  Ints (&sum)[kParts]) {
  Ints sum0 = sum[0], sum1 = sum[1], two, products;
#define REGARD_ADD_WIDE_PRODUCTS(address)                                \
  asm volatile("vpbroadcastd " address                                   \
               ", %[two]\n\t"                                            \
               "vpmaddwd %[two], %[codes0], %[products]\n\t"             \
               "vpmaddwd %[two], %[codes1], %[two]\n\t"                  \
               "vpaddd %[products], %[sum0], %[sum0]\n\t"                \
               "vpaddd %[two], %[sum1], %[sum1]"                         \
               : [sum0] "+x"(sum0), [sum1] "+x"(sum1), [two] "=&x"(two), \
                 [products] "=&x"(products)                              \
               : [x] "r"(x), [stride] "r"(row_bytes), [at] "i"(kOffset), \
                 [codes0] "x"(codes[0]), [codes1] "x"(codes[1])          \
               : "memory")
  if constexpr (kRow == 0) {
    REGARD_ADD_WIDE_PRODUCTS("%c[at](%[x])");
  } else if constexpr (kRow == 1) {
    REGARD_ADD_WIDE_PRODUCTS("%c[at](%[x],%[stride])");
  } else {
    REGARD_ADD_WIDE_PRODUCTS("%c[at](%[x],%[stride],2)");
  }
#undef REGARD_ADD_WIDE_PRODUCTS
  sum[0] = sum0;
  sum[1] = sum1;
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
HWY_INLINE Ints load_widened(const std::byte* at) {
  return _mm512_cvtepi8_epi16(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}
// VNNI has products and their sums in one instruction. As assembly, because the
// target AVX3 is for machines without it, too.
template <bool kVnni>
HWY_INLINE void add_narrow_products(Ints codes, Ints x, Ints& sum) {
  if constexpr (kVnni) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(x));
  } else {
    sum = _mm512_add_epi16(sum, _mm512_maddubs_epi16(codes, x));
  }
}
template <bool kVnni>
HWY_INLINE Ints widened_sums(Ints sums) {
  return kVnni ? sums : _mm512_madd_epi16(sums, _mm512_set1_epi16(1));
}
HWY_INLINE Floats to_floats(Ints x) { return _mm512_cvtepi32_ps(x); }
HWY_INLINE Floats zero_floats() { return _mm512_setzero_ps(); }
HWY_INLINE Floats broadcast(float x) { return _mm512_set1_ps(x); }
HWY_INLINE Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
HWY_INLINE Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
HWY_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
  return _mm512_fmadd_ps(a, b, c);
}
HWY_INLINE void store(Floats x, float* to) { _mm512_storeu_ps(to, x); }
HWY_INLINE Floats load_floats(const float* at) { return _mm512_loadu_ps(at); }
HWY_INLINE Floats load_halves(const std::byte* at) {
  return _mm512_cvtph_ps(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}
template <int kRow, int kOffset>
HWY_INLINE void add_wide_products(const Ints (&codes)[kParts],
                                  const std::byte* x, std::size_t row_bytes,
                                  Ints (&sum)[kParts]) {
  const Ints two = broadcast_four(x + kRow * row_bytes + kOffset);
  sum[0] = _mm512_add_epi32(sum[0], _mm512_madd_epi16(codes[0], two));
}
// The same for two panels, with VNNI.
template <int kRow, int kOffset>
HWY_INLINE void add_wide_products(const Ints (&codes)[2], const std::byte* x,
                                  std::size_t row_bytes, Ints (&sum)[2]) {
  const Ints two = broadcast_four(x + kRow * row_bytes + kOffset);
  asm("vpdpwssd %2, %1, %0" : "+v"(sum[0]) : "v"(codes[0]), "v"(two));
  asm("vpdpwssd %2, %1, %0" : "+v"(sum[1]) : "v"(codes[1]), "v"(two));
}
#endif

constexpr std::size_t kPartBytes = sizeof(Ints);
constexpr int kPartColumns = kColumns / kParts;

// VNNI adds to one sum every fifth cycle at best, and to two in each, so that
// more than ten are to be under way: a tile has two panels.
template <bool kVnni>
constexpr int kPanels = kVnni ? 2 : 1;
// The vectors of a row of a tile.
template <bool kVnni>
constexpr int kWidth = kPanels<kVnni>* kParts;

template <typename Form>
HWY_INLINE Floats load_scales(const Form& form, const TileLayout& layout,
                              const std::byte* at, int part) {
  at += part / kParts * layout.panel_bytes;
  part %= kParts;
  if (form.half_scales) return load_halves(at + part * kPartColumns * 2);
  return load_floats(reinterpret_cast<const float*>(at) + part * kPartColumns);
}

// Of every third row of a tile: an instruction reaches two more by itself.
template <int kRows>
struct RowAddresses {
  const std::byte* third[(kRows + 2) / 3];
};

// Two steps of k of all rows of a tile, the last of which is kRow.
template <int kRow, int kStep, bool kVnni, int kRows>
HWY_INLINE void add_step(const Ints (&code)[kWidth<kVnni>],
                         const RowAddresses<kRows>& x, std::size_t row_bytes,
                         Ints (&sum)[kRows][kWidth<kVnni>]) {
  if constexpr (kRow > 0) {
    add_step<kRow - 1, kStep, kVnni>(code, x, row_bytes, sum);
  }
  add_wide_products<kRow % 3, kStep * 4>(code, x.third[kRow / 3], row_bytes,
                                         sum[kRow]);
}
template <int kStep, bool kVnni, int kRows>
HWY_INLINE void add_steps(const std::byte* HWY_RESTRICT codes,
                          std::size_t panel_bytes, const RowAddresses<kRows>& x,
                          std::size_t row_bytes,
                          Ints (&sum)[kRows][kWidth<kVnni>]) {
  if constexpr (kStep > 0) {
    add_steps<kStep - 1, kVnni>(codes, panel_bytes, x, row_bytes, sum);
  }
  Ints code[kWidth<kVnni>];
  HWY_UNROLL(2)
  for (int p = 0; p < kWidth<kVnni>; ++p) {
    code[p] = load_widened(codes + p / kParts * panel_bytes +
                           (kStep * kParts + p % kParts) * kPartBytes / 2);
  }
  add_step<kRows - 1, kStep, kVnni>(code, x, row_bytes, sum);
}

// The integer sums of one group; rows of x are row_bytes apart.
template <bool kVnni, int kRows>
HWY_INLINE void sum_group_8(const std::byte* HWY_RESTRICT codes,
                            const TileLayout& layout,
                            const std::byte* HWY_RESTRICT x,
                            Ints (&sum)[kRows][kWidth<kVnni>]) {
  constexpr int kSteps = 4;  // a group is a multiple of 8
  const std::size_t row_bytes = layout.row.bytes;
  RowAddresses<kRows> rows;
  HWY_UNROLL(4)
  for (int i = 0; i < (kRows + 2) / 3; ++i) {
    rows.third[i] = x + 3 * i * row_bytes;
  }
  for (std::int64_t i = 0; i < layout.group; i += 2 * kSteps) {
    add_steps<kSteps - 1, kVnni>(codes, layout.panel_bytes, rows, row_bytes,
                                 sum);
    codes += kSteps * kParts * kPartBytes / 2;
    HWY_UNROLL(4)
    for (const std::byte*& row : rows.third) {
      row += kSteps * 2 * sizeof(std::int16_t);
    }
  }
}

template <bool kVnni, int kRows>
HWY_INLINE void sum_group_4(const std::byte* HWY_RESTRICT codes,
                            const TileLayout& layout,
                            const std::byte* HWY_RESTRICT x,
                            Ints (&sum)[kRows][kWidth<kVnni>]) {
  // 8 steps of at most 2 * 15 * 127 stay within 16 bits.
  for (std::int64_t i = 0; i < layout.group; i += 8) {
    Ints low[kWidth<kVnni>], high[kWidth<kVnni>];
    HWY_UNROLL(2)
    for (int p = 0; p < kWidth<kVnni>; ++p) {
      const Ints both = load_codes(codes + p / kParts * layout.panel_bytes +
                                   p % kParts * kPartBytes);
      low[p] = low_halves(both);
      high[p] = high_halves(both);
    }
    HWY_UNROLL(6)
    for (int r = 0; r < kRows; ++r) {
      const Ints even = broadcast_four(x + r * layout.row.bytes);
      const Ints odd = broadcast_four(x + r * layout.row.bytes + 4);
      HWY_UNROLL(2)
      for (int p = 0; p < kWidth<kVnni>; ++p) {
        add_narrow_products<kVnni>(low[p], even, sum[r][p]);
        add_narrow_products<kVnni>(high[p], odd, sum[r][p]);
      }
    }
    codes += kParts * kPartBytes;
    x += 8;
  }
  HWY_UNROLL(6)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (int p = 0; p < kWidth<kVnni>; ++p) {
      sum[r][p] = widened_sums<kVnni>(sum[r][p]);
    }
  }
}

template <int kRows, CodeBits kBits, bool kVnni, typename Form>
HWY_INLINE void quantised_tile(const TileLayout& layout, const Form& form,
                               const std::byte* panel, const std::byte* a,
                               const float* bias, float* c,
                               std::int64_t c_stride) {
  constexpr bool kWide = kBits == CodeBits::k8;
  const std::int64_t groups = layout.groups;
  const std::size_t scale_bytes = layout.scale_bytes;
  const std::size_t group_bytes = layout.group_bytes;
  const RoundedRowLayout row = layout.row;
  const std::size_t x_bytes =
      static_cast<std::size_t>(layout.group) * (kWide ? 2 : 1);
  const auto row_floats = static_cast<std::int64_t>(row.bytes / sizeof(float));
  const auto* const scales = reinterpret_cast<const float*>(a);
  const auto* const sums = reinterpret_cast<const float*>(a + row.sums);
  const std::byte* x = a + row.codes;
  Floats total[kRows][kWidth<kVnni>];
  HWY_UNROLL(6)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (int p = 0; p < kWidth<kVnni>; ++p) total[r][p] = zero_floats();
  }
  for (std::int64_t g = 0; g < groups; ++g, panel += group_bytes) {
    Ints sum[kRows][kWidth<kVnni>];
    HWY_UNROLL(6)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(2)
      for (int p = 0; p < kWidth<kVnni>; ++p) sum[r][p] = zero_ints();
    }
    const std::byte* const codes =
        panel + (form.has_minima ? 2 : 1) * scale_bytes;
    if constexpr (kWide) {
      sum_group_8<kVnni>(codes, layout, x, sum);
    } else {
      sum_group_4<kVnni>(codes, layout, x, sum);
    }
    x += x_bytes;
    HWY_UNROLL(2)
    for (int p = 0; p < kWidth<kVnni>; ++p) {
      const Floats scale = load_scales(form, layout, panel, p);
      HWY_UNROLL(6)
      for (int r = 0; r < kRows; ++r) {
        Floats factor = scale;
        if constexpr (!kWide) {
          factor = multiply(scale, broadcast(scales[r * row_floats + g]));
        }
        total[r][p] = multiply_add(to_floats(sum[r][p]), factor, total[r][p]);
      }
      if (form.has_minima) {
        const Floats minimum =
            load_scales(form, layout, panel + scale_bytes, p);
        HWY_UNROLL(6)
        for (int r = 0; r < kRows; ++r) {
          total[r][p] = multiply_add(
              minimum, broadcast(sums[r * row_floats + g]), total[r][p]);
        }
      }
    }
  }
  HWY_UNROLL(6)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (int p = 0; p < kWidth<kVnni>; ++p) {
      Floats result = total[r][p];
      if constexpr (kWide) {
        result = multiply(result, broadcast(scales[r * row_floats]));
      }
      if (bias != nullptr) {
        result = add(result, load_floats(bias + p * kPartColumns));
      }
      store(result, c + r * c_stride + p * kPartColumns);
    }
  }
}

#else  // any other target: the definition, column by column

template <typename Form>
HWY_INLINE float scale_at(const Form& form, const std::byte* at, int column) {
  if (form.half_scales) {
    Float16 half;
    std::memcpy(&half.bits, at + 2 * column, 2);
    return static_cast<float>(half);
  }
  float scale;
  std::memcpy(&scale, at + 4 * column, 4);
  return scale;
}

template <CodeBits kBits>
HWY_INLINE int code_at(const std::byte* codes, std::int64_t i, int column) {
  if constexpr (kBits == CodeBits::k4) {
    const std::int64_t step = i / 4;
    const int both =
        static_cast<int>(codes[step / 2 * 4 * kColumns + column * 4 + i % 4]);
    return step % 2 == 0 ? both & 15 : both >> 4;
  } else {
    return static_cast<std::int8_t>(
        codes[i / 2 * 2 * kColumns + column * 2 + i % 2]);
  }
}

template <int kRows, CodeBits kBits, bool kVnni, typename Form>
HWY_INLINE void quantised_tile(const TileLayout& layout, const Form& form,
                               const std::byte* panel, const std::byte* a,
                               const float* bias, float* c,
                               std::int64_t c_stride) {
  constexpr bool kWide = kBits == CodeBits::k8;
  using Code = std::conditional_t<kWide, std::int16_t, std::int8_t>;
  const std::int64_t groups = layout.groups;
  const std::size_t scale_bytes = layout.scale_bytes;
  const RoundedRowLayout row = layout.row;
  for (int r = 0; r < kRows; ++r, a += row.bytes) {
    const auto* const scales = reinterpret_cast<const float*>(a);
    const auto* const sums = reinterpret_cast<const float*>(a + row.sums);
    const auto* const x = reinterpret_cast<const Code*>(a + row.codes);
    for (int column = 0; column < kColumns; ++column) {
      float total = 0.0f;
      const std::byte* at = panel;
      for (std::int64_t g = 0; g < groups; ++g, at += layout.group_bytes) {
        const std::byte* const codes =
            at + (form.has_minima ? 2 : 1) * scale_bytes;
        std::int32_t sum = 0;
        for (std::int64_t i = 0; i < layout.group; ++i) {
          sum += code_at<kBits>(codes, i, column) * x[g * layout.group + i];
        }
        float factor = scale_at(form, at, column);
        if (!kWide) factor *= scales[g];
        total = std::fma(static_cast<float>(sum), factor, total);
        if (form.has_minima) {
          total = std::fma(scale_at(form, at + scale_bytes, column), sums[g],
                           total);
        }
      }
      if (kWide) total *= scales[0];
      if (bias != nullptr) total += bias[column];
      c[r * c_stride + column] = total;
    }
  }
}
#endif

// A function of its own: within its caller g++ has too few registers for it,
// and it is a quarter slower.
template <int kRows, CodeBits kBits, typename Form>
HWY_NOINLINE void vnni_tile(const TileLayout& layout, const Form& form,
                            const std::byte* panel, const std::byte* a,
                            const float* bias, float* c,
                            std::int64_t c_stride) {
  quantised_tile<kRows, kBits, true>(layout, form, panel, a, bias, c, c_stride);
}

// A tile of `rows` rows, from kLeast to kMost.
template <int kLeast, int kMost, CodeBits kBits, bool kVnni, typename Form>
HWY_INLINE void tile_of(std::int64_t rows, const TileLayout& layout,
                        const Form& form, const std::byte* panel,
                        const std::byte* a, const float* bias, float* c,
                        std::int64_t c_stride) {
  if constexpr (kMost > kLeast) {
    if (rows < kMost) {
      return tile_of<kLeast, kMost - 1, kBits, kVnni>(rows, layout, form, panel,
                                                      a, bias, c, c_stride);
    }
  }
  if constexpr (kVnni) {
    vnni_tile<kMost, kBits>(layout, form, panel, a, bias, c, c_stride);
  } else {
    quantised_tile<kMost, kBits, false>(layout, form, panel, a, bias, c,
                                        c_stride);
  }
}

// The rows from `row` on over the panel that begins at `column`.
template <CodeBits kBits, typename Form>
HWY_INLINE void panel_rows(const QuantisedGemm& job, const TileLayout& layout,
                           const Form& form, const std::byte* panel,
                           std::int64_t column, std::int64_t row) {
  // The sums of a tile fill the registers of AVX2 but for the codes and inputs.
  constexpr int kRows = kBits == CodeBits::k8 ? 6 : 4;
  static_assert(kQuantisedRows % kRows == 0);
  const std::int64_t columns = std::min<std::int64_t>(kColumns, job.n - column);
  // The last panel may be wider than c.
  const bool fits = columns == kColumns;
  HWY_ALIGN float last_bias[kColumns] = {};
  const float* bias = job.bias;
  if (bias != nullptr) {
    bias += column;
    if (!fits) bias = (std::copy_n(bias, columns, last_bias), last_bias);
  }
  for (; row < job.m; row += kRows) {
    const std::byte* const a =
        job.a + static_cast<std::size_t>(row) * layout.row.bytes;
    const std::int64_t rows = std::min<std::int64_t>(kRows, job.m - row);
    float* const to = job.c + row * job.c_stride + column;
    HWY_ALIGN float c[kRows * kColumns];
    tile_of<1, kRows, kBits, false>(rows, layout, form, panel, a, bias,
                                    fits ? to : c,
                                    fits ? job.c_stride : kColumns);
    for (std::int64_t r = 0; r < (fits ? 0 : rows); ++r) {
      std::copy_n(c + r * kColumns, columns, to + r * job.c_stride);
    }
  }
}

// All rows over all panels: a panel stays in the cache while the rows pass.
// Where there is VNNI, it takes two panels and all rows in tiles as even as can
// be: what would be left beside whole tiles has too few sums for it.
template <CodeBits kBits, bool kVnni, typename Form>
HWY_NOINLINE void quantised_panels(const QuantisedGemm& job) {
  const TileLayout layout(*job.layout);
  const Form form(*job.layout);
  const std::byte* panel = job.b;
  std::int64_t column = 0, row = 0;
  const auto finish_panel = [&] {
    panel_rows<kBits>(job, layout, form, panel, column, row);
    panel += layout.panel_bytes;
    column += kColumns;
  };
  if constexpr (kVnni) {
    constexpr int kLeast = 4, kMost = 6;
    static_assert(kQuantisedRows % kMost == 0);
    const std::int64_t tiles =
        std::max<std::int64_t>(1, (job.m + kMost - 1) / kMost);
    const std::int64_t least = job.m / tiles, larger = job.m % tiles;
    while (job.n - column >= 2 * kColumns) {
      const float* const bias =
          job.bias == nullptr ? nullptr : job.bias + column;
      row = 0;
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        const std::int64_t rows =
            least >= kLeast ? least + (tile < larger ? 1 : 0) : kMost;
        if (row + rows > job.m) break;
        tile_of<kLeast, kMost, kBits, true>(
            rows, layout, form, panel,
            job.a + static_cast<std::size_t>(row) * layout.row.bytes, bias,
            job.c + row * job.c_stride + column, job.c_stride);
        row += rows;
      }
      finish_panel();
      finish_panel();
    }
    row = 0;
  }
  while (column < job.n) finish_panel();
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
template <typename Code>
HWY_INLINE std::int32_t round_group(const float* HWY_RESTRICT x,
                                    std::int64_t count, float factor,
                                    Code* HWY_RESTRICT codes) {
  const hn::CappedTag<float, 16> d;
  const hn::Rebind<std::int32_t, decltype(d)> di;
  const hn::Rebind<Code, decltype(d)> dc;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sums = hn::Zero(di);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto code =
        hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)));
    hn::StoreU(hn::DemoteTo(dc, code), dc, codes + i);
    sums = hn::Add(sums, code);
  }
  std::int32_t sum = hn::GetLane(hn::SumOfLanes(di, sums));
  for (; i < count; ++i) {
    // Adding and taking away 1.5 * 2^23 rounds in the same way.
    constexpr float kRound = 12582912.0f;
    const float code = (x[i] * factor + kRound) - kRound;
    codes[i] = static_cast<Code>(code);
    sum += static_cast<std::int32_t>(code);
  }
  return sum;
}

// What numbers of at most `largest` are multiplied with to become codes of at
// most `most`, and the scale that leads back.
struct Rounding {
  float factor, scale;
};
HWY_INLINE Rounding rounding_of(float largest, float most) {
  // Below this most / largest is no float; such numbers count as zero.
  constexpr float kLeast = 0x1p-112f;
  const bool finite = largest <= std::numeric_limits<float>::max();
  const bool counts = finite && largest >= kLeast;
  return {counts ? most / largest : 0.0f,
          counts   ? largest / most
          : finite ? 0.0f
                   : std::numeric_limits<float>::quiet_NaN()};
}

template <typename Code>
HWY_INLINE std::int32_t codes_of_group(const float* x, std::int64_t count,
                                       float factor, Code* codes) {
  if (factor != 0) return round_group(x, count, factor, codes);
  std::fill_n(codes, count, Code{0});
  return 0;
}

// Some groups at a time, so that their divisions overlap.
HWY_INLINE void round_groups(const RoundedGroups& row) {
  constexpr int kTogether = 16;
  const std::int64_t groups = (row.k + row.group - 1) / row.group;
  for (std::int64_t first = 0; first < groups; first += kTogether) {
    const int count =
        static_cast<int>(std::min<std::int64_t>(kTogether, groups - first));
    float* const scales = row.scales + first;
    float factors[kTogether];
    for (int i = 0; i < count; ++i) {
      const std::int64_t begin = (first + i) * row.group;
      const Rounding rounding = rounding_of(
          largest_of(row.x + begin, std::min(row.group, row.k - begin)),
          127.0f);
      factors[i] = rounding.factor;
      scales[i] = rounding.scale;
    }
    for (int i = 0; i < count; ++i) {
      const std::int64_t begin = (first + i) * row.group;
      const std::int32_t sum =
          codes_of_group(row.x + begin, std::min(row.group, row.k - begin),
                         factors[i], row.codes + begin);
      if (row.sums != nullptr) {
        row.sums[first + i] = scales[i] * static_cast<float>(sum);
      }
    }
  }
}

HWY_INLINE void round_wide(const RoundedWide& row) {
  const Rounding rounding = rounding_of(largest_of(row.x, row.k), row.most);
  *row.scale = rounding.scale;
  if (row.sums == nullptr) {
    codes_of_group(row.x, row.k, rounding.factor, row.codes);
    return;
  }
  float* sum = row.sums;
  for (std::int64_t begin = 0; begin < row.k; begin += row.group) {
    *sum++ = static_cast<float>(
        codes_of_group(row.x + begin, std::min(row.group, row.k - begin),
                       rounding.factor, row.codes + begin));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // REGARD_KERNELS_QUANTISED_INL_H_
