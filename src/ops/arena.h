// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "regard/ops/memory_pool.h"

namespace regard::ops {

// Memory of one piece of work: taken from the front, given back by scopes. What
// was taken never moves. Work that is repeated asks the pool for nothing.
class Arena {
  struct Place {
    std::size_t chunk = 0;
    std::int64_t used = 0;
  };

 public:
  explicit Arena(MemoryPool pool = MemoryPool()) : pool_(std::move(pool)) {}

  // Room for so many floats, not initialised, from a cache line on.
  float* take(std::int64_t floats) {
    constexpr std::int64_t kLine = 16;
    const std::int64_t count = (floats + kLine - 1) / kLine * kLine;
    while (at_.chunk < chunks_.size() &&
           chunks_[at_.chunk].floats - at_.used < count) {
      at_ = {at_.chunk + 1, 0};
    }
    if (at_.chunk == chunks_.size()) {
      // As much again as there is, so that chunks are few.
      const std::int64_t size = std::max(count, total_);
      chunks_.push_back({pool_.take(size), size});
      total_ += size;
    }
    float* const data = chunks_[at_.chunk].data.get() + at_.used;
    at_.used += count;
    return data;
  }

  // Gives back everything.
  void reset() { at_ = {}; }

  // Gives back, at its end, what was taken since its start.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), start_(arena.at_) {}
    ~Scope() { arena_.at_ = start_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    Place start_;
  };

 private:
  struct Chunk {
    std::shared_ptr<float> data;
    std::int64_t floats;
  };

  MemoryPool pool_;
  std::vector<Chunk> chunks_;
  std::int64_t total_ = 0;
  Place at_;
};

}  // namespace regard::ops
