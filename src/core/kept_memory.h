// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "regard/core/aligned_buffer.h"

namespace regard::detail {

// For memory that others than core keep for a thread's next calls: from here on
// release_thread_scratch() on this thread calls `release`, too. To be said once
// a thread.
void release_with_scratch(void (*release)() noexcept);

// While one lives, thread_scratch() of this thread is other memory: for code of
// the caller that runs in the middle of a call and may call regard itself.
class ScratchAside {
 public:
  ScratchAside() noexcept;
  ~ScratchAside();
  ScratchAside(const ScratchAside&) = delete;
  ScratchAside& operator=(const ScratchAside&) = delete;

 private:
  std::array<AlignedBuffer, 2> kept_;  // of each Scratch
};

}  // namespace regard::detail
