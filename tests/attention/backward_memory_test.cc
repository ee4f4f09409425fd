// SPDX-License-Identifier: Apache-2.0
// Memory that runs out in the middle of a backward pass.
#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <string>
#include <thread>

#include "regard/core/aligned_buffer.h"
#include "regard/core/error.h"
#include "regard/core/threads.h"
#include "support/run_backward.h"

namespace {

enum class Starved { kNobody, kWorkers, kEverybody };
std::atomic<Starved> starved{Starved::kNobody};
std::thread::id caller;

}  // namespace

// What AlignedBuffer asks for its memory.
void* operator new(std::size_t bytes, std::align_val_t alignment,
                   const std::nothrow_t&) noexcept {
  const Starved who = starved;
  if (who == Starved::kEverybody ||
      (who == Starved::kWorkers && std::this_thread::get_id() != caller)) {
    return nullptr;
  }
  try {
    return ::operator new(bytes, alignment);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

namespace regard {
namespace {

class Starvation {
 public:
  explicit Starvation(Starved who) {
    caller = std::this_thread::get_id();
    starved = who;
  }
  ~Starvation() { starved = Starved::kNobody; }
};

// One head, so that its runs of keys are spread over the threads, and each
// waits for its turn after the one before.
test::BackwardCase one_head() {
  test::Rng rng(1);
  return test::backward_case(rng, test::filled({1, 1, 1, 300, 3000, 16, 16}),
                             true);
}

TEST(BackwardMemory, AWorkerWithoutMemoryIsNotWaitedForByTheOthers) {
  const test::BackwardCase b = one_head();
  const auto expected = test::run_backward<float>(b);
  for (int i = 0; i < 10; ++i) {
    ThreadPool pool(3);  // whose threads have no memory yet
    test::BackwardCall<float> call(b, {});
    call.options.threads = {.count = 3, .pool = &pool};
    {
      const Starvation starvation(Starved::kWorkers);
      attention_backward(call.inputs, call.gradients, call.options);
    }
    ASSERT_EQ(test::different_bits(call.take(), expected), "");
  }
}

TEST(BackwardMemory, ACallerWithoutMemoryIsToldSo) {
  const test::BackwardCase b = one_head();
  ThreadPool pool(3);
  test::BackwardCall<float> call(b, {});
  call.options.threads = {.count = 3, .pool = &pool};
  release_thread_scratch();
  const Starvation starvation(Starved::kEverybody);
  EXPECT_THROW(attention_backward(call.inputs, call.gradients, call.options),
               IoError);
}

}  // namespace
}  // namespace regard
