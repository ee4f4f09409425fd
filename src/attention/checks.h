// SPDX-License-Identifier: Apache-2.0
// Rules that more than one call of attention has.
#pragma once

#include <cmath>
#include <cstdint>
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

// For what threads write, row by row: no two may be one.
template <typename T, int Rank>
void check_rows_apart(const TensorView<T, Rank>& view, const char* where,
                      const char* name) {
  for (int dim = 0; dim + 1 < Rank && view.size() > 0; ++dim) {
    require(view.stride(dim) != 0 || view.extent(dim) <= 1, where,
            "the rows of ", name, " must not overlap; its strides are ",
            ShapeText{view.strides()});
  }
}

}  // namespace regard::detail
