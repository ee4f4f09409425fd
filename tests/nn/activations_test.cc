// SPDX-License-Identifier: Apache-2.0
#include "nn/activations.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

namespace regard::nn::detail {
namespace {

TEST(Activation, TakesOverTheMemoryOfOneThatIsGone) {
  std::optional<Activation> first(std::in_place, 2, 100, 300);
  std::optional<Activation> other(std::in_place, 2, 100, 300);
  float* const memory = first->rows().data();
  EXPECT_NE(other->rows().data(), memory);
  first.reset();
  const Activation next(2, 100, 290);
  EXPECT_EQ(next.rows().data(), memory);
}

TEST(Activation, DoesNotTakeMemoryOfAnotherSize) {
  float* memory = nullptr;
  {
    const Activation large(2, 100, 300);
    memory = large.rows().data();
  }
  const Activation small(2, 10, 300);
  EXPECT_NE(small.rows().data(), memory);
}

TEST(Activation, LeavesNothingThatReleasingTheScratchDoesNotGiveBack) {
  { const Activation large(4, 100, 300); }
  EXPECT_GE(ReusedBuffer::kept(), 4u * 100 * 300 * sizeof(float));
  release_thread_scratch();
  EXPECT_EQ(ReusedBuffer::kept(), 0u);
  { const Activation again(4, 100, 300); }
  EXPECT_GE(ReusedBuffer::kept(), 4u * 100 * 300 * sizeof(float));
}

TEST(Activation, MayBeGoneOnAnotherThread) {
  std::optional<Activation> made(std::in_place, 1, 50, 50);
  std::thread([&] { made.reset(); }).join();
  const Activation next(1, 50, 50);
  next.rows().data()[0] = 1.0f;
  EXPECT_EQ(next.rows()(0, 0, 0), 1.0f);
}

}  // namespace
}  // namespace regard::nn::detail
