// SPDX-License-Identifier: Apache-2.0
#include "nn/relative_bias.h"

#include <algorithm>
#include <cmath>

namespace regard::nn::detail {

std::int64_t RelativeBuckets::operator()(std::int64_t distance) const {
  const std::int64_t side = both_sides ? count / 2 : count;
  const std::int64_t first = both_sides && distance > 0 ? side : 0;
  const std::int64_t n =
      both_sides ? std::abs(distance) : std::max<std::int64_t>(-distance, 0);
  const std::int64_t exact = side / 2;
  if (n < exact) return first + n;
  // In float, as the models that were trained with it: at the ends of a bucket
  // the rounding decides.
  const float share =
      std::log(static_cast<float>(n) / static_cast<float>(exact)) /
      static_cast<float>(std::log(static_cast<double>(max_distance) /
                                  static_cast<double>(exact)));
  const auto steps =
      static_cast<std::int64_t>(share * static_cast<float>(side - exact));
  return first + std::min(exact + steps, side - 1);
}

Tensor relative_table(const Tensor& values, const RelativeBuckets& buckets,
                      std::int64_t places) {
  const auto from = values.view<float, 2>();
  Tensor table({from.extent(1), 2 * places - 1});
  const auto to = table.view<float, 2>();
  for (std::int64_t k = 0; k < to.extent(1); ++k) {
    const float* const row = from.at(buckets(k - places + 1));
    for (std::int64_t h = 0; h < to.extent(0); ++h) to.at(h)[k] = row[h];
  }
  return table;
}

}  // namespace regard::nn::detail
