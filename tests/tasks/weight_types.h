// SPDX-License-Identifier: Apache-2.0
// What the models of all tasks promise of weights with fewer bits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "regard/core/threads.h"
#include "regard/ops/weight_storage.h"

namespace regard::tasks {

struct Said {
  std::string what;
  double sure = 0;
};

// load(storage) is a model, answer(model, first, count, threads) what it says
// of some of `count` examples. In bfloat16 and int8 it says the same as in
// float32 but for `slips` answers, as sure to within `near`; in int4 mostly the
// same. The bits of an answer depend on no batch and no number of threads.
template <typename Load, typename Answer>
void expect_weight_types_agree(const Load& load, const Answer& answer,
                               std::size_t count, double near,
                               std::size_t slips = 0) {
  using ops::WeightStorage;
  const auto exact = load(WeightStorage::kFloat32);
  const std::vector<Said> truth = answer(exact, 0, count, Threads{.count = 1});
  ASSERT_EQ(truth.size(), count);
  for (const auto& [storage, name] :
       {std::pair{WeightStorage::kBFloat16, "bfloat16"},
        std::pair{WeightStorage::kInt8, "int8"},
        std::pair{WeightStorage::kInt4, "int4"}}) {
    SCOPED_TRACE(name);
    const auto model = load(storage);
    const std::vector<Said> said = answer(model, 0, count, Threads{.count = 3});
    std::size_t same = 0, moved = 0;
    double most = 0;
    for (std::size_t i = 0; i < count; ++i) {
      same += said[i].what == truth[i].what;
      moved += said[i].sure != truth[i].sure;
      most = std::max(most, std::abs(said[i].sure - truth[i].sure));
    }
    EXPECT_GT(moved, 0u);
    if (storage == WeightStorage::kInt4) {
      EXPECT_GE(same, count * 8 / 10);
    } else {
      EXPECT_GE(same + slips, count);
      EXPECT_LE(most, near);
    }
    for (const std::size_t i : {std::size_t{0}, count / 2, count - 1}) {
      const Said alone = answer(model, i, 1, Threads{.count = 1}).at(0);
      EXPECT_EQ(alone.what, said[i].what) << i;
      EXPECT_EQ(alone.sure, said[i].sure) << i;
    }
  }
}

}  // namespace regard::tasks
