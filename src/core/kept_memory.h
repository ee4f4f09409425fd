// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace regard::detail {

// For memory that others than core keep for a thread's next calls: from here on
// release_thread_scratch() on this thread calls `release`, too. To be said once
// a thread.
void release_with_scratch(void (*release)() noexcept);

}  // namespace regard::detail
