// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace regard::ops {

// Memory that is reused: what one operation gives back, the next one takes.
// Fresh pages cost more than the arithmetic of a small step. Copies share one
// pool; threads may share it, too.
class MemoryPool {
 public:
  MemoryPool();
  // At most `most_kept` bytes wait in it for their next user.
  explicit MemoryPool(std::size_t most_kept);

  // Room for so many floats, not initialised, aligned like an AlignedBuffer;
  // goes back to the pool with its last owner, who may outlive the pool.
  std::shared_ptr<float> take(std::int64_t floats);

  std::size_t bytes_in_use() const;
  std::size_t bytes_kept() const;
  std::size_t peak_bytes() const;  // the most in use since it was last reset
  void reset_peak();
  void release();  // frees what is kept

 private:
  struct Shelf;
  std::shared_ptr<Shelf> shelf_;
};

// The calling thread's own pool, for calls that nobody keeps memory for. Keeps
// at most 64 MiB, until release_thread_scratch().
MemoryPool& thread_memory_pool();

}  // namespace regard::ops
