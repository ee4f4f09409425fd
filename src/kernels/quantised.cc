// SPDX-License-Identifier: Apache-2.0
#include "kernels/quantised.h"

#include <algorithm>
#include <cstring>

#include "regard/core/float16.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantised.cc"
#include "hwy/foreach_target.h"
// The line above includes this file again, once for each target.
#include "kernels/quantised-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

void run_round_row(const float* x, std::int64_t k, std::int64_t group,
                   std::int8_t* codes, float* scales, float* sums) {
  for (std::int64_t begin = 0; begin < k; begin += group) {
    const RoundedGroup rounded =
        round_group(x + begin, std::min(group, k - begin), codes + begin);
    *scales++ = rounded.scale;
    if (sums != nullptr) *sums++ = rounded.sum;
  }
}

template <CodeBits kBits, ScaleType kScales>
void with_minima(const QuantisedGemm& job, const RoundedRows& rows) {
  job.layout->has_minima ? quantised_panels<kBits, kScales, true>(job, rows)
                         : quantised_panels<kBits, kScales, false>(job, rows);
}
template <CodeBits kBits>
void with_scales(const QuantisedGemm& job, const RoundedRows& rows) {
  job.layout->scales == ScaleType::kFloat16
      ? with_minima<kBits, ScaleType::kFloat16>(job, rows)
      : with_minima<kBits, ScaleType::kFloat32>(job, rows);
}
void run_quantised_gemm(const QuantisedGemm& job, const RoundedRows& rows) {
  job.layout->bits == CodeBits::k4 ? with_scales<CodeBits::k4>(job, rows)
                                   : with_scales<CodeBits::k8>(job, rows);
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::kernels {

HWY_EXPORT(run_round_row);
HWY_EXPORT(run_quantised_gemm);

void quantised_pack_column(const QuantisedLayout& layout,
                           const QuantisedColumn& column, std::int64_t place,
                           std::byte* panel) noexcept {
  const auto write_scale = [&](float value, std::byte* to) {
    if (layout.scales == ScaleType::kFloat16) {
      const Float16 half(value);
      std::memcpy(to + 2 * place, &half.bits, 2);
    } else {
      std::memcpy(to + 4 * place, &value, 4);
    }
  };
  for (std::int64_t g = 0; g < layout.groups(); ++g) {
    write_scale(column.scales[g], panel);
    if (layout.has_minima) {
      write_scale(column.minima[g], panel + layout.scale_bytes());
    }
    std::byte* const codes =
        panel + layout.scale_bytes() * (layout.has_minima ? 2 : 1);
    const std::int64_t begin = g * layout.group;
    const std::int64_t end = std::min(layout.k, begin + layout.group);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t step = (i - begin) / 4;
      const std::int64_t inside = place * 4 + i % 4;
      const auto code = static_cast<std::uint8_t>(column.codes[i]);
      if (layout.bits == CodeBits::k4) {
        codes[step / 2 * 4 * kQuantisedColumns + inside] |=
            std::byte(step % 2 == 0 ? code : code << 4);
      } else {
        codes[step * 4 * kQuantisedColumns + inside] = std::byte(code);
      }
    }
    panel += layout.group_bytes();
  }
}

void quantise_groups(const float* weights, std::int64_t k, std::int64_t group,
                     std::int8_t* codes, float* scales) noexcept {
  HWY_DYNAMIC_DISPATCH(run_round_row)
  (weights, k, group, codes, scales, nullptr);
}

std::size_t quantised_gemm_scratch_bytes(const QuantisedLayout& layout,
                                         std::int64_t m) {
  const auto groups = static_cast<std::size_t>(layout.groups());
  const auto padded = static_cast<std::size_t>(layout.padded_k());
  const auto rows = static_cast<std::size_t>(m);
  // And a row before it goes into its tile.
  return rows * groups * 2 * sizeof(float) + (rows + 1) * padded;
}

void quantised_gemm(const QuantisedGemm& job, std::byte* scratch) noexcept {
  const QuantisedLayout& layout = *job.layout;
  const std::int64_t groups = layout.groups();
  const std::int64_t padded = layout.padded_k();
  auto* const scales = reinterpret_cast<float*>(scratch);
  float* const sums = scales + job.m * groups;
  auto* const codes = reinterpret_cast<std::int8_t*>(sums + job.m * groups);
  std::int8_t* const row_codes = codes + job.m * padded;
  std::fill(row_codes + layout.k, row_codes + padded, std::int8_t{0});
  for (std::int64_t row = 0; row < job.m; ++row) {
    HWY_DYNAMIC_DISPATCH(run_round_row)
    (job.a + row * job.a_stride, layout.k, layout.group, row_codes,
     scales + row * groups, sums + row * groups);
    const std::int64_t first = row / kQuantisedRows * kQuantisedRows;
    const std::int64_t rows = std::min(kQuantisedRows, job.m - first);
    std::int8_t* to = codes + first * padded + (row - first) * 4;
    for (std::int64_t i = 0; i < padded; i += 4, to += rows * 4) {
      std::memcpy(to, row_codes + i, 4);
    }
  }
  HWY_DYNAMIC_DISPATCH(run_quantised_gemm)
  (job, RoundedRows{codes, scales, sums});
}

}  // namespace regard::kernels
#endif  // HWY_ONCE
