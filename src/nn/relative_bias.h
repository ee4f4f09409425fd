// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "regard/tensor/tensor.h"

namespace regard::nn::detail {

// Relative positions as T5 has them: distances share a number in buckets,
// small ones alone, larger ones on a logarithmic scale up to max_distance.
struct RelativeBuckets {
  std::int64_t count;
  std::int64_t max_distance;
  bool both_sides;  // keys behind the query have buckets of their own

  // `distance` is key - query.
  std::int64_t operator()(std::int64_t distance) const;
};

// table(h, k) = values(bucket(k - places + 1), h) for k in [0, 2 * places - 1):
// what relative_bias() reads. values is [buckets, heads].
Tensor relative_table(const Tensor& values, const RelativeBuckets& buckets,
                      std::int64_t places);

}  // namespace regard::nn::detail
