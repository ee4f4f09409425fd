// SPDX-License-Identifier: Apache-2.0
#include "regard/core/interrupt.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace regard {
namespace {

using std::chrono::milliseconds;

class InterruptOn : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Threads, InterruptOn, ::testing::Values(1, 2, 4));

TEST_P(InterruptOn, StopsACallBetweenTwoTasks) {
  constexpr std::int64_t kTasks = 10000;  // minutes, if nobody stopped them
  std::atomic<int> done{0};
  const auto caller = std::this_thread::get_id();
  bool asked_elsewhere = false;
  const auto wanted = [&] {
    asked_elsewhere |= std::this_thread::get_id() != caller;
    return true;
  };
  const InterruptScope scope(wanted);
  EXPECT_THROW(parallel_for({GetParam()}, kTasks,
                            [&](std::int64_t) {
                              std::this_thread::sleep_for(milliseconds(10));
                              ++done;
                            }),
               Interrupted);
  EXPECT_LT(done.load(), kTasks);
  EXPECT_FALSE(asked_elsewhere);
}

TEST_P(InterruptOn, LeavesACallAloneThatNobodyStops) {
  int asked = 0;
  const auto wanted = [&] {
    ++asked;
    return false;
  };
  const InterruptScope scope(wanted);
  std::atomic<int> done{0};
  parallel_for({GetParam()}, 40, [&](std::int64_t) {
    std::this_thread::sleep_for(milliseconds(10));
    ++done;
  });
  EXPECT_EQ(done.load(), 40);
  EXPECT_GE(asked, 1);
}

TEST(Interrupt, IsNotAskedOutsideItsScope) {
  bool asked = false;
  {
    const auto wanted = [&] { return asked = true; };
    const InterruptScope scope(wanted);
  }
  parallel_for({1}, 10, [](std::int64_t) {
    std::this_thread::sleep_for(milliseconds(10));
  });
  EXPECT_FALSE(asked);
}

TEST(Interrupt, AsksTheInnermostScope) {
  int outer_asked = 0, inner_asked = 0;
  const auto outer = [&] { return ++outer_asked < 0; };
  const auto inner = [&] { return ++inner_asked < 0; };
  const InterruptScope outer_scope(outer);
  const InterruptScope inner_scope(inner);
  parallel_for({1}, 20, [](std::int64_t) {
    std::this_thread::sleep_for(milliseconds(10));
  });
  EXPECT_EQ(outer_asked, 0);
  EXPECT_GE(inner_asked, 1);
}

}  // namespace
}  // namespace regard
