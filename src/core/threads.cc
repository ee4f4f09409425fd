// SPDX-License-Identifier: Apache-2.0
#include "regard/core/threads.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

#include "core/kept_memory.h"
#include "regard/core/error.h"
#include "regard/core/interrupt.h"
#include "regard/core/team.h"

namespace regard {
namespace {

// More than any machine has; keeps a slip of the caller from starting millions.
constexpr int kMostThreads = 1024;

// Long enough that back-to-back calls never sleep, short enough that nobody
// sees the cost: a wake-up by the kernel takes several microseconds.
constexpr auto kSpinTime = std::chrono::microseconds(30);

thread_local bool inside_task = false;
thread_local InterruptScope* innermost_interrupt = nullptr;

class InsideTask {
 public:
  InsideTask() : before_(inside_task) { inside_task = true; }
  ~InsideTask() { inside_task = before_; }
  InsideTask(const InsideTask&) = delete;
  InsideTask& operator=(const InsideTask&) = delete;

 private:
  bool before_;
};

int core_count() {
  static const int cores = [] {
    int count = 0;
#if defined(__linux__)
    // What this process may use, which a container can make fewer.
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
      count = CPU_COUNT(&allowed);
    }
#endif
    if (count == 0) {
      count = static_cast<int>(std::thread::hardware_concurrency());
    }
    return std::clamp(count, 1, kMostThreads);
  }();
  return cores;
}

// How often this process is the child of a fork().
std::atomic<std::uint64_t>& fork_count() {
  static std::atomic<std::uint64_t> count{0};
  [[maybe_unused]] static const int registered = pthread_atfork(
      nullptr, nullptr,
      [] { fork_count().fetch_add(1, std::memory_order_relaxed); });
  return count;
}

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits for `done` for at most kSpinTime.
template <typename Predicate>
bool spin_until(const Predicate& done) {
  if (done()) return true;
  // With one core, whoever spins keeps from working the one it waits for.
  if (core_count() == 1) return false;
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 16; ++i) {
      pause_briefly();
      if (done()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// One parallel_for, on its caller's stack.
struct Job {
  Job(std::int64_t task_count, int helper_count,
      FunctionRef<void(std::int64_t)> task_body)
      : tasks(task_count), helpers(helper_count), body(task_body) {}

  const std::int64_t tasks;
  const int helpers;  // how many workers may join the caller
  const FunctionRef<void(std::int64_t)> body;
  std::atomic<std::int64_t> next{0};
  std::mutex error_mutex;
  std::exception_ptr error;     // of the lowest task that threw
  std::int64_t error_task = 0;  // its number
  std::atomic<int> active{0};   // workers inside; changed under the pool's lock
  int joined = 0;               // the rest: under the pool's lock
  bool caller_sleeps = false;

  bool has_room() const {
    return joined < helpers && next.load(std::memory_order_relaxed) < tasks;
  }

  void work() {
    const InsideTask mark;
    for (;;) {
      std::int64_t task = tasks;  // while none is taken
      try {
        // Before a task is taken: one that was taken and never run would be
        // waited for by tasks after it, which may need what it leaves.
        if (next.load(std::memory_order_relaxed) < tasks) {
          InterruptScope::poll();
        }
        task = next.fetch_add(1, std::memory_order_relaxed);
        if (task >= tasks) return;
        body(task);
      } catch (...) {
        keep_error(task);
        next.store(tasks, std::memory_order_relaxed);
      }
    }
  }

 private:
  // All tasks below one that throws were started before it, so that which error
  // is kept does not depend on who was faster.
  void keep_error(std::int64_t task) {
    const std::lock_guard lock(error_mutex);
    if (error && error_task <= task) return;
    error = std::current_exception();
    error_task = task;
  }
};

// The threads of a pool and what they wait for. A forked child has the memory
// but not the threads, and perhaps a lock that is held for ever: it leaves the
// crew of its parent alone and makes its own.
class Crew {
 public:
  Crew(Crew* forefather, std::uint64_t generation)
      : forefather_(forefather), generation_(generation) {}

  ~Crew() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      posted_.fetch_add(1, std::memory_order_relaxed);
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  std::uint64_t generation() const { return generation_; }

  // `most_workers` bounds how many threads may ever be started.
  void run(Job& job, int most_workers) {
    post(job, most_workers);
    job.work();
    finish(job);
    if (job.error) std::rethrow_exception(job.error);
  }

 private:
  // Workers that the jobs of the moment could still use.
  int vacancies() const {
    int count = 0;
    for (const Job* job : jobs_) {
      if (job->has_room()) count += job->helpers - job->joined;
    }
    return count;
  }

  void post(Job& job, int most_workers) {
    int to_wake = 0;
    bool wake_all = false;
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(&job);
      const int wanted = vacancies();
      int seeking = spinning_ + sleeping_;
      while (seeking < wanted &&
             workers_.size() < static_cast<std::size_t>(most_workers)) {
        if (!start_worker()) break;
        ++seeking;
      }
      posted_.fetch_add(1, std::memory_order_release);
      // Those who spin come by themselves, and so do the new ones.
      to_wake = std::min(wanted - (seeking - sleeping_), sleeping_);
      wake_all = to_wake == sleeping_;
    }
    if (to_wake <= 0) return;
    if (wake_all) {
      wake_.notify_all();
    } else {
      for (int i = 0; i < to_wake; ++i) wake_.notify_one();
    }
  }

  // False where the system gives no more threads, or no memory for one: the
  // caller works on with those there are, and the result is the same.
  bool start_worker() noexcept {
    try {
      workers_.emplace_back([this] { seek_work(); });
    } catch (...) {
      return false;
    }
    return true;
  }

  void finish(Job& job) {
    {
      const std::lock_guard lock(mutex_);
      std::erase(jobs_, &job);  // nobody joins from here on
    }
    const auto done = [&job] {
      return job.active.load(std::memory_order_acquire) == 0;
    };
    if (spin_until(done)) return;
    std::unique_lock lock(mutex_);
    job.caller_sleeps = true;
    finished_.wait(lock, done);
  }

  Job* find_job() const {
    for (Job* job : jobs_) {
      if (job->has_room()) return job;
    }
    return nullptr;
  }

  void seek_work() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      if (Job* job = find_job()) {
        help(*job, lock);
        continue;
      }
      const std::uint64_t seen = posted_.load(std::memory_order_relaxed);
      const auto news = [this, seen] {
        return posted_.load(std::memory_order_acquire) != seen;
      };
      ++spinning_;
      lock.unlock();
      spin_until(news);
      lock.lock();
      --spinning_;
      if (news()) continue;
      ++sleeping_;
      wake_.wait(lock, news);
      --sleeping_;
    }
  }

  void help(Job& job, std::unique_lock<std::mutex>& lock) {
    ++job.joined;
    job.active.fetch_add(1, std::memory_order_relaxed);
    lock.unlock();
    job.work();
    lock.lock();
    // The job may be gone as soon as `active` is 0, so ask first.
    const bool caller_sleeps = job.caller_sleeps;
    job.active.fetch_sub(1, std::memory_order_release);
    if (caller_sleeps) finished_.notify_all();
  }

  [[maybe_unused]] Crew* const
      forefather_;  // keeps what fork() left behind reachable
  const std::uint64_t generation_;
  std::atomic<std::uint64_t> posted_{0};
  std::mutex mutex_;
  std::condition_variable wake_;      // workers wait for a job
  std::condition_variable finished_;  // callers wait for their workers
  std::vector<Job*> jobs_;            // in the order they came
  std::vector<std::thread> workers_;
  int spinning_ = 0;
  int sleeping_ = 0;
  bool stop_ = false;
};

// The team of use_external_threads, and the process that has it.
struct TeamOfProcess {
  std::atomic<Team> team{nullptr};
  std::atomic<std::uint64_t> generation{0};
};
TeamOfProcess& team_of_process() {
  static TeamOfProcess team;
  return team;
}

Team present_team() {
  TeamOfProcess& ours = team_of_process();
  const Team team = ours.team.load(std::memory_order_acquire);
  const bool here = ours.generation.load(std::memory_order_relaxed) ==
                    fork_count().load(std::memory_order_relaxed);
  return here ? team : nullptr;
}

void run_with_team(Team team, Job& job) {
  const auto work = [](void* shared) { static_cast<Job*>(shared)->work(); };
  team(work, &job, static_cast<unsigned>(job.helpers) + 1, 0);
  if (job.error) std::rethrow_exception(job.error);
}

int checked_count(Threads threads) {
  require(threads.count >= 0, "Threads",
          "count must not be negative (0 means one for each core); got ",
          threads.count);
  return threads.count;
}

}  // namespace

InterruptScope::InterruptScope(FunctionRef<bool()> wanted)
    : wanted_(wanted),
      asked_(std::chrono::steady_clock::now()),
      outer_(innermost_interrupt) {
  innermost_interrupt = this;
}

InterruptScope::~InterruptScope() { innermost_interrupt = outer_; }

void InterruptScope::poll() {
  InterruptScope* const scope = innermost_interrupt;
  if (scope == nullptr) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - scope->asked_ < kInterval) return;
  scope->asked_ = now;
  // It may call regard: a handler of Python's signals can do anything.
  const detail::ScratchAside aside;
  if (scope->wanted_()) throw Interrupted();
}

struct ThreadPool::Impl {
  int size = 1;
  std::atomic<Crew*> crew{nullptr};

  ~Impl() {
    Crew* current = crew.load(std::memory_order_acquire);
    if (current == nullptr) return;
    // The threads of a parent cannot be joined from its child.
    if (current->generation() == fork_count().load()) delete current;
  }

  Crew& ready_crew() {
    const std::uint64_t generation =
        fork_count().load(std::memory_order_relaxed);
    Crew* current = crew.load(std::memory_order_acquire);
    while (current == nullptr || current->generation() != generation) {
      auto fresh = std::make_unique<Crew>(current, generation);
      if (crew.compare_exchange_strong(current, fresh.get(),
                                       std::memory_order_acq_rel)) {
        current = fresh.release();
      }
    }
    return *current;
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  require(threads >= 1 && threads <= kMostThreads, "ThreadPool",
          "threads must lie in 1 .. ", kMostThreads, "; got ", threads);
  impl_->size = threads;
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::size() const { return impl_->size; }

ThreadPool& ThreadPool::shared() {
  // Never destroyed: at exit other threads may still compute, and joining the
  // workers from a static destructor can wait for ever.
  static ThreadPool* const pool = new ThreadPool(core_count());
  return *pool;
}

void use_external_threads(Team team) noexcept {
  TeamOfProcess& ours = team_of_process();
  ours.generation.store(fork_count().load(std::memory_order_relaxed),
                        std::memory_order_relaxed);
  ours.team.store(team, std::memory_order_release);
}

int thread_count(Threads threads, std::int64_t tasks) {
  const int count = checked_count(threads);
  if (inside_task || tasks <= 1) return 1;
  int most = kMostThreads;
  if (threads.pool != nullptr) {
    most = threads.pool->size();
  } else if (count == 0) {
    most = core_count();
  }
  const int allowed = count == 0 ? most : std::min(count, most);
  return static_cast<int>(std::min<std::int64_t>(allowed, tasks));
}

void parallel_for(Threads threads, std::int64_t tasks,
                  FunctionRef<void(std::int64_t)> body) {
  require(tasks >= 0, "parallel_for", "tasks must not be negative; got ",
          tasks);
  const int count = thread_count(threads, tasks);
  if (count == 1) {
    const InsideTask mark;
    for (std::int64_t task = 0; task < tasks; ++task) {
      InterruptScope::poll();
      body(task);
    }
    return;
  }
  Job job(tasks, count - 1, body);
  if (const Team team = present_team(); team && threads.pool == nullptr) {
    return run_with_team(team, job);
  }
  ThreadPool& pool =
      threads.pool != nullptr ? *threads.pool : ThreadPool::shared();
  // The process's own pool grows for a caller who asks for more than one
  // thread per core; a pool that was passed keeps its size.
  const int most = threads.pool != nullptr ? pool.size() - 1
                                           : std::max(pool.size(), count) - 1;
  pool.impl_->ready_crew().run(job, most);
}

}  // namespace regard
