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

void run_round_row(const RoundedRow& row) { round_row(row); }

template <CodeBits kBits, ScaleType kScales>
void with_minima(const QuantisedGemm& job) {
  job.layout->has_minima ? quantised_panels<kBits, kScales, true>(job)
                         : quantised_panels<kBits, kScales, false>(job);
}
template <CodeBits kBits>
void with_scales(const QuantisedGemm& job) {
  job.layout->scales == ScaleType::kFloat16
      ? with_minima<kBits, ScaleType::kFloat16>(job)
      : with_minima<kBits, ScaleType::kFloat32>(job);
}
void run_quantised_gemm(const QuantisedGemm& job) {
  switch (job.layout->bits) {
    case CodeBits::k8:
      return with_scales<CodeBits::k8>(job);
    case CodeBits::k7:
      return quantised_panels<CodeBits::k7, ScaleType::kFloat32, false>(job);
    case CodeBits::k4:
      return with_scales<CodeBits::k4>(job);
  }
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
      const auto code = static_cast<std::uint8_t>(
          column.codes[i] + (layout.bits == CodeBits::k7 ? 64 : 0));
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
                     float most, std::int8_t* codes, float* scales) noexcept {
  HWY_DYNAMIC_DISPATCH(run_round_row)
  ({.x = weights,
    .k = k,
    .group = group,
    .most = most,
    .codes = codes,
    .scales = scales});
}

std::size_t rounded_row_bytes(const QuantisedLayout& layout) {
  const auto groups = static_cast<std::size_t>(layout.groups());
  return groups *
             (rounded_row_has_sums(layout.bits, layout.has_minima) ? 2 : 1) *
             sizeof(float) +
         static_cast<std::size_t>(layout.padded_k());
}

void quantised_round(const QuantisedLayout& layout, const float* a,
                     std::int64_t a_stride, std::int64_t m,
                     std::byte* to) noexcept {
  const std::size_t row_bytes = rounded_row_bytes(layout);
  const std::int64_t padding = layout.padded_k() - layout.k;
  for (std::int64_t row = 0; row < m; ++row, a += a_stride, to += row_bytes) {
    auto* const scales = reinterpret_cast<float*>(to);
    auto* const codes =
        reinterpret_cast<std::int8_t*>(to) + row_bytes - layout.padded_k();
    HWY_DYNAMIC_DISPATCH(run_round_row)
    ({.x = a,
      .k = layout.k,
      .group = layout.group,
      .most = 127.0f,
      .codes = codes,
      .scales = scales,
      .sums = rounded_row_has_sums(layout.bits, layout.has_minima)
                  ? scales + layout.groups()
                  : nullptr,
      .bits = layout.bits});
    std::fill_n(codes + layout.k, padding, std::int8_t{0});
  }
}

void quantised_gemm(const QuantisedGemm& job) noexcept {
  HWY_DYNAMIC_DISPATCH(run_quantised_gemm)(job);
}

}  // namespace regard::kernels
#endif  // HWY_ONCE
