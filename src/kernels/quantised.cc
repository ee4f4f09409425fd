// SPDX-License-Identifier: Apache-2.0
#include "kernels/quantised.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "regard/core/float16.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantised.cc"
#include "hwy/foreach_target.h"
// The line above includes this file again, once for each target.
#include "kernels/quantised-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

void run_round_groups(const RoundedGroups& row) { round_groups(row); }
void run_round_wide(const RoundedWide& row) { round_wide(row); }

template <bool kVnni, bool kHalfScales>
void run_4(const QuantisedGemm& job) {
  job.layout->has_minima
      ? quantised_panels<CodeBits::k4, kVnni, FixedForm<kHalfScales, true>>(job)
      : quantised_panels<CodeBits::k4, kVnni, FixedForm<kHalfScales, false>>(
            job);
}
template <bool kVnni>
void run(const QuantisedGemm& job) {
  switch (job.layout->bits) {
    case CodeBits::k8:
      return quantised_panels<CodeBits::k8, kVnni, AnyForm>(job);
    case CodeBits::k4:
      return job.layout->scales == ScaleType::kFloat16
                 ? run_4<kVnni, true>(job)
                 : run_4<kVnni, false>(job);
  }
}
void run_quantised_gemm(const QuantisedGemm& job) {
#if HWY_TARGET == HWY_AVX3
  if (job.vnni) return run<true>(job);
#endif
  run<false>(job);
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::kernels {

HWY_EXPORT(run_round_groups);
HWY_EXPORT(run_round_wide);
HWY_EXPORT(run_quantised_gemm);

bool has_vnni() noexcept {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx512vnni") != 0;
  return has;
#else
  return false;
#endif
}

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
      const std::int64_t at = i - begin;
      const auto code = static_cast<std::uint8_t>(column.codes[i]);
      if (layout.bits == CodeBits::k4) {
        const std::int64_t step = at / 4;
        codes[step / 2 * 4 * kQuantisedColumns + place * 4 + at % 4] |=
            std::byte(step % 2 == 0 ? code : code << 4);
      } else {
        codes[at / 2 * 2 * kQuantisedColumns + place * 2 + at % 2] =
            std::byte(code);
      }
    }
    panel += layout.group_bytes();
  }
}

void quantise_groups(const float* weights, std::int64_t k, std::int64_t group,
                     std::int8_t* codes, float* scales) noexcept {
  HWY_DYNAMIC_DISPATCH(run_round_groups)
  ({.x = weights, .k = k, .group = group, .codes = codes, .scales = scales});
}

namespace {

// The largest code of a left side whose products with a group of codes of 8
// bits fit in a sum of 32.
float most_of_wide(std::int64_t group) {
  constexpr std::int64_t kSum = std::numeric_limits<std::int32_t>::max();
  constexpr std::int64_t kCode = std::numeric_limits<std::int16_t>::max();
  return static_cast<float>(std::min(kCode, kSum / (128 * group)));
}

}  // namespace

void quantised_round(const QuantisedLayout& layout, const float* a,
                     std::int64_t a_stride, std::int64_t m,
                     std::byte* to) noexcept {
  const RoundedRowLayout row(layout);
  const auto padding = static_cast<std::size_t>(layout.padded_k() - layout.k);
  for (std::int64_t i = 0; i < m; ++i, a += a_stride, to += row.bytes) {
    auto* const scales = reinterpret_cast<float*>(to);
    auto* const sums =
        layout.has_minima ? reinterpret_cast<float*>(to + row.sums) : nullptr;
    if (layout.bits == CodeBits::k8) {
      auto* const codes = reinterpret_cast<std::int16_t*>(to + row.codes);
      HWY_DYNAMIC_DISPATCH(run_round_wide)
      ({.x = a,
        .k = layout.k,
        .group = layout.group,
        .most = most_of_wide(layout.group),
        .codes = codes,
        .scale = scales,
        .sums = sums});
      std::fill_n(codes + layout.k, padding, std::int16_t{0});
    } else {
      auto* const codes = reinterpret_cast<std::int8_t*>(to + row.codes);
      HWY_DYNAMIC_DISPATCH(run_round_groups)
      ({.x = a,
        .k = layout.k,
        .group = layout.group,
        .codes = codes,
        .scales = scales,
        .sums = sums});
      std::fill_n(codes + layout.k, padding, std::int8_t{0});
    }
  }
}

void quantised_gemm(const QuantisedGemm& job) noexcept {
  HWY_DYNAMIC_DISPATCH(run_quantised_gemm)(job);
}

}  // namespace regard::kernels
#endif  // HWY_ONCE
