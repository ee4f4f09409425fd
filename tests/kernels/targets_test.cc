// SPDX-License-Identifier: Apache-2.0
#include "regard/kernels/targets.h"

#include <gtest/gtest.h>

#include <string>

#include "hwy/targets.h"
#include "support/refusal.h"

namespace regard {
namespace {

// Others may be computing while somebody asks.
TEST(SimdTargets, AskingChangesNothing) {
  EXPECT_FALSE(simd_targets().empty());  // the first may look at the machine
  hwy::GetChosenTarget().DeInit();
  EXPECT_FALSE(simd_targets().empty());
  EXPECT_EQ(simd_target(), simd_targets().front());
  EXPECT_FALSE(hwy::GetChosenTarget().IsInitialized());
}

TEST(SimdTargets, ARefusedNameLeavesTheChoice) {
  const std::string last = simd_targets().back();
  set_simd_target(last);
  EXPECT_EQ(test::refusal([] { set_simd_target("MMX"); }).substr(0, 16),
            "set_simd_target:");
  EXPECT_EQ(simd_target(), last);
  // The list is the same whatever is chosen.
  EXPECT_EQ(simd_targets().back(), last);
  set_simd_target("");
  EXPECT_EQ(simd_target(), simd_targets().front());
}

}  // namespace
}  // namespace regard
