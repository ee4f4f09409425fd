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
  k4,  // 0 .. 15
};
enum class ScaleType { kFloat32, kFloat16 };

struct QuantisedLayout {
  std::int64_t k = 0;
  // A multiple of 8; at most 32 of codes of 4 bits, and kLargestGroup of 8.
  std::int64_t group = 32;
  CodeBits bits = CodeBits::k8;
  ScaleType scales = ScaleType::kFloat32;  // of the minima, too
  bool has_minima = false;

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

// Weights [k] as codes of 8 bits with scales [groups]: the largest of a group
// becomes 127. Not finite: a scale of NaN, and codes of 0. So are the rows of
// a left side rounded.
void quantise_groups(const float* weights, std::int64_t k, std::int64_t group,
                     std::int8_t* codes, float* scales) noexcept;

// Rows of a that pass over a panel at a time.
inline constexpr std::int64_t kQuantisedRows = 4;

// The rounded left side, in tiles of kQuantisedRows rows and a last one of what
// is left: four codes of each row in turn, [padded k / 4][rows][4]; and for
// each row and group the scale and scale * sum of codes.
struct RoundedRows {
  std::int8_t* codes;
  float* scales;
  float* sums;
};

struct QuantisedGemm {
  std::int64_t m = 0, n = 0;
  const QuantisedLayout* layout = nullptr;
  const float* a = nullptr;  // [m, k], row i at a + i * a_stride
  std::int64_t a_stride = 0;
  const std::byte* b = nullptr;  // the panel of the first column
  const float* bias = nullptr;   // [n], or null for none
  float* c = nullptr;            // [m, n], row i at c + i * c_stride
  std::int64_t c_stride = 0;
};
// What rounding the left side takes.
std::size_t quantised_gemm_scratch_bytes(const QuantisedLayout& layout,
                                         std::int64_t m);
void quantised_gemm(const QuantisedGemm& job, std::byte* scratch) noexcept;

}  // namespace regard::kernels
