// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace regard {

class ThreadPool;

// How many threads one call may use, the caller among them. The result never
// depends on it. A pool that is passed never works with more than its size; the
// process's own grows where a caller asks for more than one per core.
struct Threads {
  int count = 0;  // 0 means one for each core of the machine
  ThreadPool* pool =
      nullptr;  // null means the process's own, made on first use
};

// Borrows a callable for the length of a call, without the allocation that
// std::function may make.
template <typename Signature>
class FunctionRef;

template <typename Result, typename... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <typename Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef>)
      FunctionRef(Callable&& callable)  // NOLINT: implicit on purpose
      : object_(const_cast<void*>(static_cast<const void*>(&callable))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(
              std::forward<Args>(args)...);
        }) {}

  Result operator()(Args... args) const {
    return call_(object_, std::forward<Args>(args)...);
  }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

// Worker threads that wait for parallel_for. The threads start with the first
// call that wants them. Several callers may use one pool at once; a call from
// inside a task runs its tasks in the calling thread. After fork() the child
// starts threads of its own.
class ThreadPool {
 public:
  // `threads` counts the caller, so ThreadPool(1) never starts a thread.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // The process's own pool, one thread for each core.
  static ThreadPool& shared();

 private:
  friend void parallel_for(Threads threads, std::int64_t tasks,
                           FunctionRef<void(std::int64_t)> body);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The number of threads that parallel_for would use for so many tasks.
int thread_count(Threads threads, std::int64_t tasks);

// Calls body(0) .. body(tasks - 1), each once, on at most the threads allowed,
// lower numbers started first. Returns when all are done. Of the exceptions
// that tasks throw, that of the lowest number is thrown again here, whoever was
// faster; tasks not yet started are dropped.
void parallel_for(Threads threads, std::int64_t tasks,
                  FunctionRef<void(std::int64_t)> body);

}  // namespace regard
