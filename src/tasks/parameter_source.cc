// SPDX-License-Identifier: Apache-2.0
#include "tasks/parameter_source.h"

#include <algorithm>
#include <vector>

namespace regard::tasks {
namespace {

using nn::detail::PackedLinear;

// Groups that all parts can be written in.
GgufFile::Groups common_layout(std::span<const ParameterRows> parts) {
  GgufFile::Groups common = parts.front().parameter->codes->layout;
  for (const ParameterRows& part : parts) {
    const GgufFile::Groups& own = part.parameter->codes->layout;
    common.group = std::min(common.group, own.group);
    common.four_bits &= own.four_bits;
    common.half_scales &= own.half_scales;
    common.has_minima |= own.has_minima;
  }
  return common;
}

// Each of `from` as often as its group has groups of the new size.
void spread(const std::vector<float>& from, std::int64_t times, float* to) {
  for (const float value : from) to = std::fill_n(to, times, value);
}

PackedLinear pack_codes(std::span<const ParameterRows> parts) {
  const GgufFile::Groups layout = common_layout(parts);
  const std::int64_t in = parts.front().parameter->shape.back();
  std::int64_t out = 0;
  for (const ParameterRows& part : parts) out += part.count;
  const auto read = [&](std::int64_t row, const ops::GroupedWeights::Row& to) {
    std::size_t i = 0;
    for (; row >= parts[i].count; ++i) row -= parts[i].count;
    const Parameter::Codes& codes = *parts[i].parameter->codes;
    const auto groups = static_cast<std::size_t>(in / codes.layout.group);
    std::vector<float> scales(groups), minima(groups, 0.0f);
    codes.read(parts[i].begin + row, to.codes, scales.data(), minima.data());
    const std::int64_t times = codes.layout.group / layout.group;
    spread(scales, times, to.scales);
    if (layout.has_minima) spread(minima, times, to.minima);
  };
  return PackedLinear(ops::PackedWeights::pack_groups(
      {.out = out,
       .in = in,
       .group = layout.group,
       .bits = layout.four_bits ? kernels::CodeBits::k4 : kernels::CodeBits::k8,
       .scales = layout.half_scales ? kernels::ScaleType::kFloat16
                                    : kernels::ScaleType::kFloat32,
       .has_minima = layout.has_minima,
       .read = read}));
}

}  // namespace

PackedLinear pack_parameters(std::span<const ParameterRows> parts,
                             ops::WeightStorage storage) {
  const bool has_codes =
      std::all_of(parts.begin(), parts.end(), [](const ParameterRows& part) {
        return part.parameter->codes.has_value();
      });
  if (storage == ops::WeightStorage::kAsStored && has_codes) {
    return pack_codes(parts);
  }
  std::vector<Tensor> tensors;
  std::vector<ops::ConstRows> rows;
  for (const ParameterRows& part : parts) {
    tensors.push_back(part.parameter->load());
    const std::int64_t in = part.parameter->shape.back();
    const float* const first =
        tensors.back().values<float>().data() + part.begin * in;
    rows.emplace_back(first, std::array{part.count, in});
  }
  return rows.size() == 1 ? PackedLinear(rows.front(), {}, storage)
                          : PackedLinear(rows, storage);
}

}  // namespace regard::tasks
