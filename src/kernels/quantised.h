// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// Products with weights of few bits. A weight is scale * code + minimum, where
// a group of consecutive weights of one column shares scale and minimum. The
// left side is rounded to codes of 8 bits, a scale for each of the same groups,
// so that the sum over a group is one of integers and exact. Then, in float,
// group by group in index order,
//
//   c = fma(float(sum of codes * codes), scale * scale of a, c)
//   c = fma(minimum, scale of a * float(sum of a's codes), c)
//
// and the bias last: every target gives the same bits.
//
// The right side lies in panels of 16 columns. A panel is group after group;
// a group is 16 scales, 16 minima if there are any, and the codes, four steps
// of k of a column side by side: [group / 4][16][4]. Of codes of 4 bits one
// byte holds those of two neighbours in that order of steps: the lower half is
// the even step.
namespace regard::kernels {

inline constexpr std::int64_t kQuantisedColumns = 16;

enum class CodeBits {
  k8,  // -128 .. 127
  k7,  // -64 .. 63, stored as bytes with 64 added
  k4,  // 0 .. 15
};
enum class ScaleType { kFloat32, kFloat16 };

struct QuantisedLayout {
  std::int64_t k = 0;
  // A multiple of 8; at most 32 of codes of 4 bits, and kLargestGroup of more.
  std::int64_t group = 32;
  CodeBits bits = CodeBits::k8;
  ScaleType scales = ScaleType::kFloat32;  // of the minima, too
  bool has_minima = false;                 // never of codes of 7 bits,
                                           // whose scales are float32

  // So many products of 8 bits fit in a sum of 32.
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

// Weights [k] as codes with scales [groups]: the largest of a group becomes
// `most`, up to 127. Not finite: a scale of NaN, and codes of 0. So are the
// rows of a left side rounded, with 127.
void quantise_groups(const float* weights, std::int64_t k, std::int64_t group,
                     float most, std::int8_t* codes, float* scales) noexcept;

// Rows of a that pass over a panel at a time.
inline constexpr std::int64_t kQuantisedRows = 4;

// A rounded row of the left side: the scale of each group; then, where the
// layout has minima, scale * sum of codes of each, or, for codes of 7 bits,
// -64 * sum of codes as an integer; then codes [padded k].
constexpr bool rounded_row_has_sums(CodeBits bits, bool has_minima) {
  return bits == CodeBits::k7 || has_minima;
}
std::size_t rounded_row_bytes(const QuantisedLayout& layout);
struct RoundedRow {
  const float* x;
  std::int64_t k, group;
  float most;  // what the largest magnitude of a group becomes
  std::int8_t* codes;
  float* scales;
  float* sums = nullptr;  // null for none
  CodeBits bits = CodeBits::k8;
};

// Rows [m, k] of a, a_stride apart, one after the other into `to`, which is
// aligned as floats are.
void quantised_round(const QuantisedLayout& layout, const float* a,
                     std::int64_t a_stride, std::int64_t m,
                     std::byte* to) noexcept;

struct QuantisedGemm {
  std::int64_t m = 0, n = 0;
  const QuantisedLayout* layout = nullptr;
  const std::byte* a = nullptr;  // m rounded rows
  const std::byte* b = nullptr;  // the panel of the first column
  const float* bias = nullptr;   // [n], or null for none
  float* c = nullptr;            // [m, n], row i at c + i * c_stride
  std::int64_t c_stride = 0;
};
void quantised_gemm(const QuantisedGemm& job) noexcept;

}  // namespace regard::kernels
