// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "support/run_attention.h"

namespace regard::test {

// At most twice as far from the truth as a plain loop is.
template <typename T>
void expect_exact(const AttentionCase& c, const RunOptions& run = {}) {
  const Judgement judgement = try_case<T>(c, run);
  EXPECT_TRUE(judgement.good())
      << c.describe() << "\n  " << judgement.describe();
}

inline void expect_exact_in_every_storage(const AttentionCase& c) {
  expect_exact<float>(c);
  expect_exact<double>(c);
  expect_exact<BFloat16>(c);
  expect_exact<Float16>(c);
}

}  // namespace regard::test
