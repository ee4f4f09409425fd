// SPDX-License-Identifier: Apache-2.0
// Rules that more than one call of attention has.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "regard/attention/attention.h"

namespace regard::detail {

template <typename Real>
void check_per_head(std::span<const Real> values, std::int64_t heads,
                    const char* where, const char* name) {
  require(values.empty() || static_cast<std::int64_t>(values.size()) == heads,
          where, name, " must hold one value per head; heads is ", heads,
          ", values are ", values.size());
}

// options.scale, or what stands for it where it is not given.
template <typename Real>
Real checked_scale(const BasicAttentionOptions<Real>& options, std::int64_t d_k,
                   const char* where) {
  if (options.scale) {
    require(std::isfinite(*options.scale), where,
            "scale must be finite; it is ", *options.scale);
    return *options.scale;
  }
  if (options.score == Score::kCosine || d_k == 0) return Real{1};
  return static_cast<Real>(1.0 / std::sqrt(static_cast<double>(d_k)));
}

// What else a score depends on, but for the mask and the bias.
template <typename Real>
void check_score_options(const BasicAttentionOptions<Real>& options,
                         std::int64_t heads, const char* where) {
  check_per_head(options.head_scales, heads, where, "head_scales");
  check_per_head(options.alibi_slopes, heads, where, "alibi_slopes");
  check_per_head(options.sinks, heads, where, "sinks");
  require(options.softcap >= 0 && std::isfinite(options.softcap), where,
          "softcap must be finite and not negative; it is ", options.softcap);
}

// Whether two elements may be one: then threads would write it at once. Each
// dimension must step over all that smaller steps reach.
template <std::size_t Rank>
bool may_overlap(const std::array<std::int64_t, Rank>& shape,
                 const std::array<std::int64_t, Rank>& strides) {
  if (std::count(shape.begin(), shape.end(), 0) > 0) return false;
  const auto step = [&](std::size_t dim) { return std::abs(strides[dim]); };
  for (std::size_t dim = 0; dim < Rank; ++dim) {
    if (shape[dim] == 1) continue;
    std::int64_t reach = 0;
    for (std::size_t other = 0; other < Rank; ++other) {
      if (other != dim && step(other) <= step(dim)) {
        reach += (shape[other] - 1) * step(other);
      }
    }
    if (step(dim) <= reach) return true;
  }
  return false;
}

// For what threads write, row by row.
template <typename T, int Rank>
void check_rows_apart(const TensorView<T, Rank>& view, const char* where,
                      const char* name) {
  require(!may_overlap(view.shape(), view.strides()), where, "the rows of ",
          name, " must not overlap; its strides are ",
          ShapeText{view.strides()});
}

}  // namespace regard::detail
