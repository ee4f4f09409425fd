// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// Products with weights of few bits. A weight is scale * code + minimum, where
// a group of consecutive weights of one column shares scale and minimum. The
// left side is rounded to integers, too, so that the sum over a group is one of
// integers and exact. Then, in float, group by group in index order,
//
//   c = fma(float(sum of codes * codes), scale, c)
//   c = fma(minimum, float(sum of a's codes), c)
//
// and the scale of a's row and the bias last: every target gives the same bits.
// That is for codes of 8 bits, where a row of a is rounded to 16 bits with one
// scale (fewer where a long group would not fit in a sum of 32 bits). For codes
// of 4 bits a is rounded to 8 bits with a scale for each group, which takes
// the places of scale and 1 above: scale * scale of a, float(sum) * scale of a.
//
// The right side lies in panels of 16 columns. A panel is group after group;
// a group is 16 scales, 16 minima if there are any, and the codes. Of codes of
// 8 bits two steps of k of a column lie side by side: [group / 2][16][2]. Of
// codes of 4 bits it is four, [group / 4][16][4], and one byte holds those of
// two neighbours in that order of steps: the lower half is the even step.
namespace regard::kernels {

inline constexpr std::int64_t kQuantisedColumns = 16;

enum class CodeBits {
  k8,  // -128 .. 127
  k4,  // 0 .. 15
};
enum class ScaleType { kFloat32, kFloat16 };

struct QuantisedLayout {
  std::int64_t k = 0;
  // A multiple of 8; at most 32 of codes of 4 bits, and kLargestGroup of more.
  std::int64_t group = 32;
  CodeBits bits = CodeBits::k8;
  ScaleType scales = ScaleType::kFloat32;  // of the minima, too
  bool has_minima = false;

  // So many products with 8 bits on either side fit in a sum of 32.
  static constexpr std::int64_t kLargestGroup = 1 << 16;

  std::int64_t groups() const { return (k + group - 1) / group; }
  std::int64_t padded_k() const { return groups() * group; }
  std::size_t scale_bytes() const {
    return kQuantisedColumns * (scales == ScaleType::kFloat16 ? 2 : 4);
  }
  std::size_t group_bytes() const {
    const auto codes = static_cast<std::size_t>(group * kQuantisedColumns);
    return scale_bytes() * (has_minima ? 2 : 1) +
           (bits == CodeBits::k4 ? codes / 2 : codes);
  }
  std::size_t panel_bytes() const {
    return static_cast<std::size_t>(groups()) * group_bytes();
  }
};

// One column of a panel: codes [k], scales and minima [groups].
struct QuantisedColumn {
  const std::int8_t* codes = nullptr;
  const float* scales = nullptr;
  const float* minima = nullptr;  // null without
};
// Into the zeroed memory of its panel; what codes past k are to be is zero.
void quantised_pack_column(const QuantisedLayout& layout,
                           const QuantisedColumn& column, std::int64_t place,
                           std::byte* panel) noexcept;

// Weights [k] as codes of 8 bits with scales [groups]: the largest of a group
// becomes 127. Not finite: a scale of NaN, and codes of 0.
void quantise_groups(const float* weights, std::int64_t k, std::int64_t group,
                     std::int8_t* codes, float* scales) noexcept;

// Whole tiles have so many rows of a, or a divisor.
inline constexpr std::int64_t kQuantisedRows = 12;

// A rounded row of the left side. For codes of 8 bits: the scale of the row;
// then, where the layout has minima, the sum of the codes of each group as a
// float; then codes of 16 bits [padded k]. For codes of 4 bits: the scale of
// each group; then, with minima, scale * sum of codes of each; then codes of 8
// bits [padded k].
struct RoundedRowLayout {
  explicit RoundedRowLayout(const QuantisedLayout& layout) {
    const bool wide = layout.bits == CodeBits::k8;
    const auto groups = static_cast<std::size_t>(layout.groups());
    sums = (wide ? 1 : groups) * sizeof(float);
    codes = sums + (layout.has_minima ? groups : 0) * sizeof(float);
    bytes = codes + static_cast<std::size_t>(layout.padded_k()) *
                        (wide ? sizeof(std::int16_t) : sizeof(std::int8_t));
  }
  std::size_t sums, codes;  // where they begin
  std::size_t bytes;
};
inline std::size_t rounded_row_bytes(const QuantisedLayout& layout) {
  return RoundedRowLayout(layout).bytes;
}

// What the targets round: x [k] to 8 bits by groups, or to at most `most` as a
// whole.
struct RoundedGroups {
  const float* x;
  std::int64_t k, group;
  std::int8_t* codes;
  float* scales;          // [groups]
  float* sums = nullptr;  // [groups], scale * sum of codes; null for none
};
struct RoundedWide {
  const float* x;
  std::int64_t k, group;
  float most;
  std::int16_t* codes;
  float* scale;
  float* sums;  // [groups], the sums of codes; null for none
};

// Rows [m, k] of a, a_stride apart, one after the other into `to`, which is
// aligned as floats are.
void quantised_round(const QuantisedLayout& layout, const float* a,
                     std::int64_t a_stride, std::int64_t m,
                     std::byte* to) noexcept;

// Whether the processor has AVX512-VNNI. Asked once.
bool has_vnni() noexcept;

struct QuantisedGemm {
  std::int64_t m = 0, n = 0;
  const QuantisedLayout* layout = nullptr;
  const std::byte* a = nullptr;  // m rounded rows
  const std::byte* b = nullptr;  // the panel of the first column
  const float* bias = nullptr;   // [n], or null for none
  float* c = nullptr;            // [m, n], row i at c + i * c_stride
  std::int64_t c_stride = 0;
  bool vnni = has_vnni();  // used on the target AVX3; the bits are the same
};
void quantised_gemm(const QuantisedGemm& job) noexcept;

}  // namespace regard::kernels
