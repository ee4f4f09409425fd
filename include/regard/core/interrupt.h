// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <exception>

#include "regard/core/threads.h"

namespace regard {

// A call was stopped because its InterruptScope said so. What it was to write
// is half written.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted"; }
};

// Lets a long call be stopped, as by Ctrl-C. While one lives, the calls of its
// thread ask `wanted` between two tasks of parallel_for, on that thread and at
// most every kInterval; when it says true, the call throws Interrupted. The
// innermost scope counts. Without one, a call cannot be stopped. `wanted` may
// itself call regard.
class InterruptScope {
 public:
  static constexpr std::chrono::milliseconds kInterval{50};

  explicit InterruptScope(FunctionRef<bool()> wanted);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  // For parallel_for: asks where the interval is over, and throws.
  static void poll();

 private:
  FunctionRef<bool()> wanted_;
  std::chrono::steady_clock::time_point asked_;
  InterruptScope* outer_;
};

}  // namespace regard
