// SPDX-License-Identifier: Apache-2.0
#include "regard/core/aligned_buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>

#include <utility>
#include "core/kept_memory.h"

#include "regard/core/error.h"

namespace regard {
namespace {

bool is_aligned(const std::byte* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 64 == 0;
}

TEST(AlignedBuffer, StartsAtAMultipleOfACacheLineForEverySize) {
  for (const std::size_t bytes : {1u, 7u, 63u, 64u, 65u, 4097u}) {
    AlignedBuffer buffer(bytes);
    EXPECT_TRUE(is_aligned(buffer.data())) << bytes;
    EXPECT_EQ(buffer.size(), bytes);
    std::memset(buffer.data(), 0x5a, bytes);
  }
}

TEST(AlignedBuffer, OfNoBytesOwnsNothing) {
  EXPECT_EQ(AlignedBuffer().data(), nullptr);
  EXPECT_EQ(AlignedBuffer(0).data(), nullptr);
  EXPECT_EQ(AlignedBuffer(0).size(), 0u);
}

TEST(AlignedBuffer, SaysHowMuchMemoryCouldNotBeHad) {
  try {
    AlignedBuffer buffer(std::numeric_limits<std::size_t>::max());
    FAIL() << "no machine has that much";
  } catch (const IoError& error) {
    EXPECT_STREQ(error.what(),
                 "AlignedBuffer: the system has no memory for "
                 "18446744073709551615 bytes");
  }
}

TEST(AlignedBuffer, MovesWithoutMovingItsBytes) {
  AlignedBuffer a(100);
  const std::byte* place = a.data();
  AlignedBuffer b = std::move(a);
  EXPECT_EQ(b.data(), place);
  EXPECT_EQ(b.size(), 100u);
}

TEST(AlignedBuffer, ThatWasMovedFromIsEmpty) {
  AlignedBuffer a(100);
  const AlignedBuffer b = std::move(a);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT: the point of the test
  EXPECT_EQ(a.size(), 0u);
}

TEST(ThreadScratch, IsKeptForTheNextCallOfTheThread) {
  std::byte* first = thread_scratch(1000);
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(is_aligned(first));
  EXPECT_EQ(thread_scratch(10), first);
  EXPECT_EQ(thread_scratch(1000), first);
  std::byte* larger = thread_scratch(100000);
  std::memset(larger, 1, 100000);
  EXPECT_EQ(thread_scratch(50000), larger);
  release_thread_scratch();
}

TEST(ThreadScratch, CanBeHadAgainAfterItWasReleased) {
  thread_scratch(1000);
  release_thread_scratch();
  release_thread_scratch();
  std::byte* again = thread_scratch(1000);
  std::memset(again, 1, 1000);
  EXPECT_TRUE(is_aligned(again));
  release_thread_scratch();
}

TEST(ThreadScratch, IsReleasedWithWhatOthersKeepForTheThread) {
  static thread_local int released = 0;
  detail::release_with_scratch([]() noexcept { ++released; });
  release_thread_scratch();
  release_thread_scratch();
  EXPECT_EQ(released, 2);
  std::thread([] {
    release_thread_scratch();
    EXPECT_EQ(released, 0);
  }).join();
  EXPECT_EQ(released, 2);
}

TEST(ThreadScratch, IsAnotherInEachThread) {
  const std::byte* mine = thread_scratch(64);
  const std::byte* other = nullptr;
  std::thread([&other] { other = thread_scratch(64); }).join();
  EXPECT_NE(mine, other);
  release_thread_scratch();
}

}  // namespace
}  // namespace regard
