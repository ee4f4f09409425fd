// SPDX-License-Identifier: Apache-2.0
#include "regard/core/interrupt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>

#include "regard/core/aligned_buffer.h"

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

// attention_backward has such tasks: a block of keys waits for the one before.
TEST(Interrupt, LeavesNoGapBeforeATaskThatWaitsForTheOneBefore) {
  constexpr std::int64_t kTasks = 10000;
  const auto done = std::make_unique<std::atomic<bool>[]>(kTasks);
  std::atomic<bool> waited_in_vain{false};
  const auto wanted = [] {  // long enough for others to take the next tasks
    std::this_thread::sleep_for(milliseconds(200));
    return true;
  };
  const InterruptScope scope(wanted);
  EXPECT_THROW(parallel_for({4}, kTasks,
                            [&](std::int64_t task) {
                              std::this_thread::sleep_for(milliseconds(10));
                              for (int i = 0; task > 0 && !done[task - 1];
                                   ++i) {
                                std::this_thread::sleep_for(milliseconds(1));
                                if (i < 3000) continue;
                                waited_in_vain = true;
                                break;
                              }
                              done[task] = true;
                            }),
               Interrupted);
  EXPECT_FALSE(waited_in_vain);
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

// A handler of Python's signals may call regard in the middle of a call.
TEST(Interrupt, LeavesTheScratchOfTheCallAlone) {
  for (const Scratch kind : {Scratch::kTask, Scratch::kCall}) {
    constexpr std::size_t kBytes = 4096;
    std::byte* const before = thread_scratch(kBytes, kind);
    std::fill_n(before, kBytes, std::byte{1});
    int asked = 0;
    const auto wanted = [&] {
      // More than there is, which frees it, and no more, which overwrites it.
      const std::size_t bytes = ++asked == 1 ? kBytes : 64 * kBytes;
      std::fill_n(thread_scratch(bytes, kind), bytes, std::byte{2});
      if (asked > 1) release_thread_scratch();
      return false;
    };
    const InterruptScope scope(wanted);
    parallel_for({1}, 15, [](std::int64_t) {
      std::this_thread::sleep_for(milliseconds(10));
    });
    EXPECT_GE(asked, 2);
    EXPECT_EQ(thread_scratch(kBytes, kind), before);
    EXPECT_TRUE(std::all_of(before, before + kBytes, [](std::byte value) {
      return value == std::byte{1};
    }));
  }
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
