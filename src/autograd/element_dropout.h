// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/rows.h"
#include "regard/autograd/operations.h"
#include "regard/core/error.h"

namespace regard::autograd {

inline kernels::RowDropout row_dropout(const ElementDropout& dropout,
                                       const char* where) {
  require(dropout.rate >= 0 && dropout.rate < 1, where,
          "the dropout rate must be in [0, 1); it is ", dropout.rate);
  if (dropout.rate == 0) return {};
  const double words = std::round(static_cast<double>(dropout.rate) * 0x1p32);
  return {.seed = dropout.seed,
          .site = dropout.site,
          .threshold = static_cast<std::uint32_t>(std::min(words, 0x1p32 - 1)),
          .factor = static_cast<float>(1.0 / (1.0 - double{dropout.rate}))};
}

inline bool drops(const kernels::RowDropout& dropout) {
  return dropout.threshold != 0;
}

}  // namespace regard::autograd
