// SPDX-License-Identifier: Apache-2.0
#include "regard/core/threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "regard/core/error.h"
#include "regard/core/team.h"

#if defined(__SANITIZE_THREAD__)
#define REGARD_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define REGARD_TEST_TSAN 1
#endif
#endif

namespace regard {
namespace {

using namespace std::chrono_literals;

// Threads of this process as the kernel counts them, or 0 where it cannot say.
int threads_of_process() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int count = 0;
    if (word == "Threads:" && status >> count) return count;
  }
  return 0;
}

// The same once it stays: a thread that was joined may show a moment longer,
// and the thread sanitizer adds one of its own with the first that starts.
int settled_threads() {
  std::thread([] {}).join();
  int count = threads_of_process();
  for (int same = 0; same < 20; ++same) {
    std::this_thread::sleep_for(1ms);
    const int now = threads_of_process();
    if (now != count) same = 0;
    count = now;
  }
  return count;
}

// Waits until `flag` reaches `count`, so that a test can hold tasks back until
// enough threads are inside. Gives up after a while, which fails the test.
bool meet(std::atomic<int>& flag, int count) {
  ++flag;
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (flag < count) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(ParallelFor, RunsEveryTaskOnceForAnyCounts) {
  for (const int count : {0, 1, 2, 3, 5, 16}) {
    for (const std::int64_t tasks : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
      parallel_for({.count = count}, tasks, [&runs](std::int64_t task) {
        ++runs[static_cast<std::size_t>(task)];
      });
      for (const auto& run : runs) ASSERT_EQ(run, 1);
    }
  }
}

TEST(ParallelFor, MakesTheWritesOfItsTasksVisibleToTheCaller) {
  ThreadPool pool(4);
  for (int round = 0; round < 300; ++round) {
    std::vector<int> values(37);
    parallel_for({.pool = &pool}, 37, [&values, round](std::int64_t task) {
      values[static_cast<std::size_t>(task)] = round;
    });
    for (const int value : values) ASSERT_EQ(value, round);
  }
}

TEST(ParallelFor, UsesAsManyThreadsAsItIsAllowed) {
  ThreadPool pool(3);
  std::atomic<int> inside{0};
  std::atomic<int> met{0};
  parallel_for({.pool = &pool}, 3, [&](std::int64_t) {
    if (meet(inside, 3)) ++met;
  });
  EXPECT_EQ(met, 3);
}

TEST(ParallelFor, GrowsTheSharedPoolForACallerWhoAsks) {
  const int wanted = ThreadPool::shared().size() + 2;
  std::atomic<int> inside{0};
  std::atomic<int> met{0};
  parallel_for({.count = wanted}, wanted, [&](std::int64_t) {
    if (meet(inside, wanted)) ++met;
  });
  EXPECT_EQ(met, wanted);
}

TEST(ParallelFor, NeverUsesMoreThreadsThanItsBudget) {
  ThreadPool pool(4);
  for (const int budget : {1, 2, 3}) {
    std::mutex mutex;
    std::set<std::thread::id> seen;
    std::atomic<bool> done{false};
    // Another caller keeps all workers awake and looking for work.
    std::thread other([&pool, &done] {
      while (!done) parallel_for({.pool = &pool}, 8, [](std::int64_t) {});
    });
    parallel_for({budget, &pool}, 20, [&](std::int64_t) {
      std::this_thread::sleep_for(2ms);
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
    done = true;
    other.join();
    EXPECT_LE(static_cast<int>(seen.size()), budget);
  }
}

TEST(ParallelFor, StartsLowerNumbersFirst) {
  ThreadPool pool(3);
  std::atomic<std::int64_t> started{0};
  std::atomic<int> early{0};
  parallel_for({.pool = &pool}, 2000, [&](std::int64_t task) {
    // At most two others can have been given a task and not counted it yet.
    if (task > started.fetch_add(1) + 2) ++early;
  });
  EXPECT_EQ(early, 0);
  std::vector<std::int64_t> order;
  parallel_for({.count = 1}, 5,
               [&order](std::int64_t task) { order.push_back(task); });
  EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

TEST(ParallelFor, WithOneThreadStaysInTheCallersThread) {
  const auto self = std::this_thread::get_id();
  ThreadPool one(1);
  parallel_for({.count = 1}, 10, [self](std::int64_t) {
    EXPECT_EQ(std::this_thread::get_id(), self);
  });
  parallel_for({.pool = &one}, 10, [self](std::int64_t) {
    EXPECT_EQ(std::this_thread::get_id(), self);
  });
}

TEST(ParallelFor, FromInsideATaskRunsInThatTasksThread) {
  ThreadPool pool(3);
  ThreadPool other(3);
  std::atomic<int> inner{0};
  for (const int budget : {1, 3}) {
    parallel_for({budget, &pool}, 8, [&](std::int64_t) {
      const auto self = std::this_thread::get_id();
      EXPECT_EQ(thread_count({.pool = &other}, 100), 1);
      parallel_for({.pool = &other}, 5, [&](std::int64_t) {
        EXPECT_EQ(std::this_thread::get_id(), self);
        ++inner;
      });
    });
  }
  EXPECT_EQ(inner, 80);
  EXPECT_EQ(thread_count({.pool = &other}, 100), 3);  // outside again
}

TEST(ParallelFor, ThrowsTheExceptionOfATaskAgain) {
  ThreadPool pool(3);
  for (const int budget : {1, 3}) {
    for (const std::int64_t bad : {0, 5, 99}) {
      try {
        parallel_for({budget, &pool}, 100, [bad](std::int64_t task) {
          if (task == bad) throw std::runtime_error("task failed");
        });
        FAIL() << "nothing was thrown";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "task failed");
      }
      EXPECT_EQ(thread_count({.pool = &pool}, 9), 3);  // no task is left open
    }
  }
  // The pool is as good as before.
  std::atomic<int> runs{0};
  parallel_for({.pool = &pool}, 50, [&runs](std::int64_t) { ++runs; });
  EXPECT_EQ(runs, 50);
}

TEST(ParallelFor, DropsTheTasksAfterAnException) {
  ThreadPool pool(2);
  std::atomic<std::int64_t> runs{0};
  const auto body = [&runs](std::int64_t) {
    ++runs;
    throw std::runtime_error("at once");
  };
  EXPECT_THROW(parallel_for({.pool = &pool}, 1000000, body),
               std::runtime_error);
  EXPECT_LE(runs, 2);
}

TEST(ParallelFor, CarriesAnExceptionOutOfAWorker) {
  ThreadPool pool(2);
  const auto self = std::this_thread::get_id();
  std::atomic<int> inside{0};
  const auto body = [&](std::int64_t) {
    ASSERT_TRUE(meet(inside, 2));
    if (std::this_thread::get_id() != self) throw IoError("from a worker");
  };
  EXPECT_THROW(parallel_for({.pool = &pool}, 2, body), IoError);
}

// Which of several wrong files is named must not depend on who was faster.
TEST(ParallelFor, ThrowsTheExceptionOfTheLowestTask) {
  ThreadPool pool(2);
  std::atomic<int> inside{0};
  std::atomic<bool> second_threw{false};
  const auto body = [&](std::int64_t task) {
    ASSERT_TRUE(meet(inside, 2));
    if (task == 1) {
      second_threw = true;
      throw std::runtime_error("task 1");
    }
    while (!second_threw) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    throw std::runtime_error("task 0");
  };
  try {
    parallel_for({.pool = &pool}, 2, body);
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "task 0");
  }
}

TEST(ParallelFor, ServesSeveralCallersAtOnce) {
  ThreadPool pool(4);
  std::atomic<std::int64_t> total{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&pool, &total, caller] {
      for (int round = 0; round < 100; ++round) {
        parallel_for({1 + caller, &pool}, 20,
                     [&total](std::int64_t task) { total += task; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 4 * 100 * 190);
}

TEST(ParallelFor, LetsACallerPassOneWhoseTasksAreLong) {
  ThreadPool pool(2);
  std::atomic<bool> release{false};
  std::atomic<int> inside{0};
  std::thread slow([&] {
    parallel_for({.pool = &pool}, 2, [&](std::int64_t) {
      ++inside;
      while (!release) std::this_thread::yield();
    });
  });
  while (inside < 2) std::this_thread::yield();
  // Every worker is held; the caller does all of it by itself.
  std::atomic<int> runs{0};
  parallel_for({.pool = &pool}, 100, [&runs](std::int64_t) { ++runs; });
  EXPECT_EQ(runs, 100);
  release = true;
  slow.join();
}

TEST(ParallelFor, WakesWorkersThatFellAsleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> inside{0};
    std::atomic<int> met{0};
    parallel_for({.pool = &pool}, 3, [&](std::int64_t) {
      if (meet(inside, 3)) ++met;
    });
    EXPECT_EQ(met, 3);
    std::this_thread::sleep_for(5ms);  // far longer than a worker spins
  }
}

TEST(ParallelFor, WaitsForAWorkerThatTakesLong) {
  ThreadPool pool(2);
  const auto self = std::this_thread::get_id();
  std::atomic<int> inside{0};
  std::atomic<bool> done{false};
  parallel_for({.pool = &pool}, 2, [&](std::int64_t) {
    ASSERT_TRUE(meet(inside, 2));
    if (std::this_thread::get_id() == self) return;
    std::this_thread::sleep_for(20ms);  // the caller stops spinning
    done = true;
  });
  EXPECT_TRUE(done);
}

TEST(ParallelFor, RefusesNegativeCountsByName) {
  const auto nothing = [](std::int64_t) {};
  try {
    parallel_for({}, -1, nothing);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "parallel_for: tasks must not be negative; got -1");
  }
  try {
    parallel_for({.count = -2}, 1, nothing);
    FAIL() << "accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "Threads: count must not be negative (0 means one for each "
                 "core); got -2");
  }
}

TEST(ThreadCount, IsTheLeastOfBudgetPoolAndTasks) {
  ThreadPool pool(4);
  EXPECT_EQ(thread_count({.pool = &pool}, 100), 4);
  EXPECT_EQ(thread_count({.pool = &pool}, 3), 3);
  EXPECT_EQ(thread_count({2, &pool}, 100), 2);
  EXPECT_EQ(thread_count({9, &pool}, 100), 4);
  EXPECT_EQ(thread_count({.pool = &pool}, 1), 1);
  EXPECT_EQ(thread_count({.pool = &pool}, 0), 1);
  EXPECT_EQ(thread_count({.count = 7}, 100), 7);
  EXPECT_EQ(thread_count({}, 1000000), ThreadPool::shared().size());
  EXPECT_GE(ThreadPool::shared().size(), 1);
}

TEST(ThreadPool, RefusesASizeThatNoMachineHas) {
  for (const int size : {0, -1, 1025}) {
    try {
      ThreadPool pool(size);
      FAIL() << "accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(std::string(error.what()),
                "ThreadPool: threads must lie in 1 .. 1024; got " +
                    std::to_string(size));
    }
  }
}

TEST(ThreadPool, StartsNoThreadBeforeACallWantsOne) {
  if (threads_of_process() == 0) GTEST_SKIP() << "needs /proc/self/status";
  const int before = settled_threads();
  ThreadPool pool(8);
  parallel_for({1, &pool}, 100, [](std::int64_t) {});
  parallel_for({8, &pool}, 1, [](std::int64_t) {});
  EXPECT_EQ(threads_of_process(), before);
  // A call for two starts one, not seven.
  parallel_for({2, &pool}, 100, [](std::int64_t) {});
  EXPECT_EQ(threads_of_process(), before + 1);
}

TEST(ThreadPool, JoinsItsThreadsWhenItGoes) {
  if (threads_of_process() == 0) GTEST_SKIP() << "needs /proc/self/status";
  const int before = settled_threads();
  for (int round = 0; round < 20; ++round) {
    ThreadPool pool(4);
    parallel_for({.pool = &pool}, 4, [](std::int64_t) {});
  }
  EXPECT_EQ(settled_threads(), before);
}

// The child has none of its parent's threads and must not wait for them.
int child_of_fork(ThreadPool& pool) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);  // a child that hangs dies
    std::atomic<int> inside{0};
    std::atomic<int> met{0};
    const auto body = [&](std::int64_t) {
      if (meet(inside, 3)) ++met;
    };
    parallel_for({.pool = &pool}, 3, body);
    inside = 0;
    parallel_for({.count = 3}, 3, body);
    _exit(met == 6 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(ThreadPool, WorksInTheChildOfAFork) {
#if defined(REGARD_TEST_TSAN)
  GTEST_SKIP() << "the thread sanitizer allows no threads after a fork";
#endif
  auto pool = std::make_unique<ThreadPool>(3);
  parallel_for({.pool = pool.get()}, 30, [](std::int64_t) {});
  parallel_for({.count = 3}, 30, [](std::int64_t) {});
  EXPECT_EQ(child_of_fork(*pool), 0);
  std::atomic<int> runs{0};  // and still in the parent
  parallel_for({.pool = pool.get()}, 30, [&runs](std::int64_t) { ++runs; });
  EXPECT_EQ(runs, 30);
}

TEST(ThreadPool, CanBeDestroyedInTheChildOfAFork) {
#if defined(REGARD_TEST_TSAN)
  GTEST_SKIP() << "the thread sanitizer allows no threads after a fork";
#endif
  auto pool = std::make_unique<ThreadPool>(3);
  parallel_for({.pool = pool.get()}, 30, [](std::int64_t) {});
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    pool.reset();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// A team as another library may have one, and how it was called.
int team_calls = 0;
unsigned team_size = 0;
void some_team(void (*work)(void*), void* data, unsigned threads,
               unsigned flags) {
  ++team_calls;
  team_size = threads;
  EXPECT_EQ(flags, 0u);
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back(work, data);
  work(data);
  for (std::thread& other : others) other.join();
}

class WithTeam : public ::testing::Test {
 protected:
  WithTeam() {
    team_calls = 0;
    use_external_threads(some_team);
  }
  ~WithTeam() override { use_external_threads(nullptr); }
};

TEST_F(WithTeam, CallsRunOnItsThreads) {
  std::vector<std::atomic<int>> runs(40);
  std::atomic<int> inside{0};
  parallel_for({.count = 3}, 40, [&](std::int64_t i) {
    if (i < 3) {
      EXPECT_TRUE(meet(inside, 3));
    }
    ++runs[static_cast<std::size_t>(i)];
    // A call from inside a task stays in its thread.
    parallel_for({.count = 3}, 2, [](std::int64_t) {});
  });
  for (const auto& count : runs) EXPECT_EQ(count, 1);
  EXPECT_EQ(team_calls, 1);
  EXPECT_EQ(team_size, 3u);
}

TEST_F(WithTeam, ErrorsOfTasksComeBack) {
  const auto fails = [](std::int64_t i) {
    if (i == 5) throw std::runtime_error("task 5");
  };
  EXPECT_THROW(parallel_for({.count = 2}, 40, fails), std::runtime_error);
  EXPECT_EQ(team_calls, 1);
}

TEST_F(WithTeam, APassedPoolAndOneThreadDoWithoutIt) {
  ThreadPool pool(2);
  parallel_for({.pool = &pool}, 4, [](std::int64_t) {});
  parallel_for({.count = 1}, 4, [](std::int64_t) {});
  EXPECT_EQ(team_calls, 0);
}

TEST_F(WithTeam, NullGoesBackToOurOwn) {
  use_external_threads(nullptr);
  parallel_for({.count = 2}, 4, [](std::int64_t) {});
  EXPECT_EQ(team_calls, 0);
}

TEST_F(WithTeam, TheChildOfAForkDoesWithoutIt) {
#if defined(REGARD_TEST_TSAN)
  GTEST_SKIP() << "the thread sanitizer allows no threads after a fork";
#endif
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    std::atomic<int> runs{0};
    parallel_for({.count = 3}, 30, [&runs](std::int64_t) { ++runs; });
    _exit(team_calls == 0 && runs == 30 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(FunctionRef, CallsWhatItBorrows) {
  int calls = 0;
  const auto add = [&calls](int n) { return calls += n; };
  const FunctionRef<int(int)> ref = add;
  EXPECT_EQ(ref(2), 2);
  EXPECT_EQ(ref(3), 5);
}

}  // namespace
}  // namespace regard
