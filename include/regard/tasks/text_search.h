// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "regard/core/threads.h"
#include "regard/tensor/tensor_view.h"

namespace regard::tasks {

struct SearchHit {
  std::int64_t row = 0;  // of the corpus
  float similarity = 0;  // cosine, from -1 to 1
};

struct SearchOptions {
  std::int64_t top = 10;  // hits for each query, fewer if there are no more
  Threads threads{};
};

// For each query the rows of the corpus that point into the most similar
// direction, best first, ties to the lower row. A row of zeros is similar to
// nothing: 0. One with a NaN comes last. Throws InvalidArgument if the widths
// of the two differ or top is not positive.
std::vector<std::vector<SearchHit>> nearest(TensorView<const float, 2> corpus,
                                            TensorView<const float, 2> queries,
                                            const SearchOptions& options = {});

}  // namespace regard::tasks
