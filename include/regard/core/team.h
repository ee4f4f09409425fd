// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace regard {

// Runs work(data) on `threads` threads or fewer, the calling one among them,
// and returns when all have done it. GNU OpenMP's GOMP_parallel is such a
// function; flags are then 0.
using Team = void (*)(void (*work)(void*), void* data, unsigned threads,
                      unsigned flags);

// From here on the process's own pool works on the threads of another library.
// Threads that wait for work often keep a core busy while they wait, so two
// libraries with threads of their own that are called in turns slow each other
// down. A child of fork() has none of those threads, and makes its own again.
// Null: back to our own. A pool that is passed to a call stays as it is.
void use_external_threads(Team team) noexcept;

}  // namespace regard
