// SPDX-License-Identifier: Apache-2.0
// What score_ops-inl.h and dropout-inl.h in kernels are for vectors, for one
// pair at a time.
#pragma once

#include <cmath>
#include <cstdint>

#include "attention/problem.h"
#include "regard/core/random.h"

namespace regard::detail {

// cap * tanh(product / cap); a cap of 0 is none.
template <typename Real>
Real softcapped(Real product, Real cap) {
  return cap > 0 ? cap * std::tanh(product / cap) : product;
}

// Its derivative by the product, from what it gave.
template <typename Real>
Real softcap_slope(Real capped, Real cap) {
  if (cap == 0) return 1;
  const Real t = capped / cap;
  return 1 - t * t;
}

// Where a pair stands, as the random generator counts.
struct Pair {
  std::int64_t index, head, query, key;
};

inline bool is_dropped(const Dropout& dropout, const Pair& at) {
  const auto word = [](std::int64_t n) {
    return static_cast<std::uint32_t>(n);
  };
  const PhiloxCounter words =
      philox({word(at.key / 4), word(at.query), word(at.head), word(at.index)},
             dropout.seed);
  return words[static_cast<std::size_t>(at.key % 4)] <
         dropout_threshold(dropout.rate);
}

}  // namespace regard::detail
