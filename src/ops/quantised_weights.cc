// SPDX-License-Identifier: Apache-2.0
#include "ops/quantised_weights.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/rows.h"
#include "regard/core/float16.h"

namespace regard::ops {
namespace {

// Codes of one row on their way into a panel.
struct RowMemory {
  explicit RowMemory(const kernels::QuantisedLayout& layout)
      : codes(static_cast<std::size_t>(layout.k)),
        scales(static_cast<std::size_t>(layout.groups())),
        minima(layout.has_minima ? scales.size() : 0) {}

  GroupedWeights::Row row() {
    return {codes.data(), scales.data(), minima.data()};
  }

  std::vector<std::int8_t> codes;
  std::vector<float> scales, minima;
};

}  // namespace

std::size_t codes_bytes(const kernels::QuantisedLayout& layout,
                        std::int64_t out) {
  return static_cast<std::size_t>(blocks_of(out, kernels::kQuantisedColumns)) *
         layout.panel_bytes();
}

kernels::QuantisedLayout int8_layout(std::int64_t in) {
  constexpr std::int64_t kGroup = 64;
  const std::int64_t whole = blocks_of(std::max<std::int64_t>(in, 1), 8) * 8;
  return {.k = in, .group = std::min(whole, kGroup)};
}
kernels::QuantisedLayout int4_layout(std::int64_t in) {
  return {.k = in,
          .group = 32,
          .bits = kernels::CodeBits::k4,
          .scales = kernels::ScaleType::kFloat16,
          .has_minima = true};
}

void round_to_int8(const float* weights, std::int64_t in,
                   const GroupedWeights::Row& to) {
  kernels::quantise_groups(weights, in, int8_layout(in).group, to.codes,
                           to.scales);
}

// Codes 0 .. 15 between the least and the largest of 32 weights. Scale and
// minimum are rounded to half floats first, so that codes fit what is kept.
void round_to_int4(const float* weights, std::int64_t in,
                   const GroupedWeights::Row& to) {
  for (std::int64_t begin = 0, g = 0; begin < in; begin += 32, ++g) {
    const std::int64_t end = std::min(in, begin + 32);
    const auto [least, most] =
        std::minmax_element(weights + begin, weights + end);
    const auto half = [](float x) { return static_cast<float>(Float16(x)); };
    const float minimum = half(*least);
    const float scale = half((*most - minimum) / 15.0f);
    const bool finite = std::all_of(weights + begin, weights + end,
                                    [](float x) { return std::isfinite(x); }) &&
                        std::isfinite(minimum) && std::isfinite(scale);
    if (!finite) {
      to.minima[g] = to.scales[g] = std::numeric_limits<float>::quiet_NaN();
      std::fill(to.codes + begin, to.codes + end, std::int8_t{0});
      continue;
    }
    to.minima[g] = minimum;
    to.scales[g] = scale;
    for (std::int64_t i = begin; i < end; ++i) {
      const float code = scale > 0 ? (weights[i] - minimum) / scale : 0.0f;
      to.codes[i] = static_cast<std::int8_t>(
          std::clamp(std::nearbyint(code), 0.0f, 15.0f));
    }
  }
}

void pack_codes(
    const kernels::QuantisedLayout& layout, std::int64_t begin,
    std::int64_t count,
    FunctionRef<void(std::int64_t, const GroupedWeights::Row&)> read,
    std::byte* panels) {
  constexpr std::int64_t kPanel = kernels::kQuantisedColumns;
  RowMemory memory(layout);
  const auto panel_of = [&](std::int64_t row) {
    return panels +
           static_cast<std::size_t>(row / kPanel) * layout.panel_bytes();
  };
  std::fill_n(panel_of(begin), codes_bytes(layout, count), std::byte{0});
  for (std::int64_t row = begin; row < begin + count; ++row) {
    read(row, memory.row());
    kernels::quantised_pack_column(
        layout,
        {memory.codes.data(), memory.scales.data(), memory.minima.data()},
        row % kPanel, panel_of(row));
  }
}

}  // namespace regard::ops
