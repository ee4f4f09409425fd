// SPDX-License-Identifier: Apache-2.0
#include "regard/ops/memory_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

#include "ops/arena.h"
#include "regard/core/aligned_buffer.h"

namespace regard::ops {
namespace {

TEST(MemoryPoolTest, GivesTheSameMemoryAgain) {
  MemoryPool pool;
  const float* first = nullptr;
  {
    const auto memory = pool.take(10000);
    const auto other = pool.take(10000);
    first = memory.get();
    EXPECT_NE(other.get(), first);
    EXPECT_EQ(pool.bytes_in_use(), pool.peak_bytes());
  }
  EXPECT_EQ(pool.bytes_in_use(), 0u);
  const auto memory = pool.take(9990);
  const auto other = pool.take(9990);
  EXPECT_TRUE(memory.get() == first || other.get() == first);
  pool.reset_peak();
  EXPECT_EQ(pool.peak_bytes(), pool.bytes_in_use());
}

TEST(MemoryPoolTest, DoesNotGiveMuchMoreThanAskedFor) {
  MemoryPool pool;
  pool.take(30000).reset();
  EXPECT_GE(pool.bytes_kept(), 30000 * sizeof(float));
  const auto small = pool.take(3000);
  EXPECT_GE(pool.bytes_kept(), 30000 * sizeof(float));
  EXPECT_LT(pool.bytes_in_use(), 30000 * sizeof(float));
}

TEST(MemoryPoolTest, KeepsNoMoreThanItMay) {
  MemoryPool pool(std::size_t{1} << 20);
  pool.take(1 << 19).reset();  // 2 MiB
  EXPECT_EQ(pool.bytes_kept(), 0u);
  for (int i = 0; i < 3; ++i) {
    auto a = pool.take(100000), b = pool.take(100000), c = pool.take(100000);
    a.reset();
    b.reset();
    c.reset();  // 400 kB each
    EXPECT_GT(pool.bytes_kept(), 0u);
    EXPECT_LE(pool.bytes_kept(), std::size_t{1} << 20);
  }
}

TEST(MemoryPoolTest, MayGoBeforeItsMemory) {
  std::shared_ptr<float> memory;
  {
    MemoryPool pool;
    memory = pool.take(3);
  }
  memory.get()[2] = 1.0f;
}

TEST(ThreadMemoryPool, LeavesNothingThatReleasingTheScratchDoesNotGiveBack) {
  constexpr std::int64_t kFloats = 4 * 100 * 300;
  thread_memory_pool().take(kFloats).reset();
  EXPECT_GE(thread_memory_pool().bytes_kept(), kFloats * sizeof(float));
  release_thread_scratch();
  EXPECT_EQ(thread_memory_pool().bytes_kept(), 0u);
  thread_memory_pool().take(kFloats).reset();
  EXPECT_GE(thread_memory_pool().bytes_kept(), kFloats * sizeof(float));
}

TEST(ThreadMemoryPool, TakesBackFromAnotherThreadAndFromOneThatEnded) {
  std::shared_ptr<float> mine = thread_memory_pool().take(2500);
  const float* const data = mine.get();
  std::shared_ptr<float> other;
  std::thread([&] {
    mine.reset();
    other = thread_memory_pool().take(2500);
  }).join();
  EXPECT_EQ(thread_memory_pool().take(2500).get(), data);
  other.get()[2499] = 1.0f;
  other.reset();
}

TEST(ArenaTest, GivesMemoryThatStaysAndComesAgain) {
  MemoryPool pool;
  Arena arena(pool);
  float* const first = arena.take(100);
  first[99] = 7.0f;
  float* inner = nullptr;
  {
    const Arena::Scope scope(arena);
    inner = arena.take(50);
    inner[0] = 1.0f;
    float* const large = arena.take(100000);
    large[99999] = 2.0f;
    EXPECT_NE(inner, first);
    EXPECT_EQ(inner[0], 1.0f);
  }
  EXPECT_EQ(first[99], 7.0f);
  EXPECT_EQ(arena.take(50), inner);
  const std::size_t bytes = pool.bytes_in_use();
  for (int i = 0; i < 3; ++i) {
    arena.reset();
    EXPECT_EQ(arena.take(100), first);
    arena.take(50);
    arena.take(100000);
  }
  EXPECT_EQ(pool.bytes_in_use(), bytes);
}

TEST(ArenaTest, StartsEveryPieceOnACacheLine) {
  Arena arena;
  for (const std::int64_t floats : {1, 16, 17, 0, 3}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.take(floats)) % 64, 0u);
  }
}

}  // namespace
}  // namespace regard::ops
