// SPDX-License-Identifier: Apache-2.0
#include "regard/ops/memory_pool.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "core/kept_memory.h"
#include "regard/core/aligned_buffer.h"

namespace regard::ops {
namespace {

// Sizes are rounded up to an eighth of their power of two, so that batches of
// slightly different sizes find each other's memory.
std::size_t rounded(std::size_t bytes) {
  constexpr std::size_t kLeast = 4096;
  if (bytes <= kLeast) return kLeast;
  const std::size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

}  // namespace

struct MemoryPool::Shelf {
  explicit Shelf(std::size_t most) : most_kept(most) {}

  const std::size_t most_kept;
  std::mutex mutex;
  std::multimap<std::size_t, AlignedBuffer> free;
  std::size_t kept = 0;
  std::size_t in_use = 0;
  std::size_t peak = 0;

  AlignedBuffer take(std::size_t bytes) {
    AlignedBuffer buffer;
    {
      const std::lock_guard lock(mutex);
      // Up to twice as large is better than fresh pages.
      const auto found = free.lower_bound(bytes);
      if (found != free.end() && found->first <= 2 * bytes) {
        buffer = std::move(found->second);
        free.erase(found);
        kept -= buffer.size();
      }
    }
    if (buffer.size() == 0) buffer = AlignedBuffer(bytes);
    const std::lock_guard lock(mutex);
    in_use += buffer.size();
    peak = std::max(peak, in_use);
    return buffer;
  }

  void give(AlignedBuffer buffer) {
    const std::lock_guard lock(mutex);
    const std::size_t size = buffer.size();
    in_use -= size;
    if (size > most_kept) return;
    if (kept + size > most_kept)
      clear();  // those sizes are no longer asked for
    kept += size;
    free.emplace(size, std::move(buffer));
  }

  void clear() {
    free.clear();
    kept = 0;
  }
};

MemoryPool::MemoryPool()
    : MemoryPool(std::numeric_limits<std::size_t>::max()) {}

MemoryPool::MemoryPool(std::size_t most_kept)
    : shelf_(std::make_shared<Shelf>(most_kept)) {}

std::shared_ptr<float> MemoryPool::take(std::int64_t floats) {
  struct Lease {
    Lease(std::shared_ptr<Shelf> from, std::size_t bytes)
        : shelf(std::move(from)), buffer(shelf->take(bytes)) {}
    ~Lease() { shelf->give(std::move(buffer)); }

    std::shared_ptr<Shelf> shelf;
    AlignedBuffer buffer;
  };
  auto lease = std::make_shared<Lease>(
      shelf_,
      rounded(static_cast<std::size_t>(std::max<std::int64_t>(floats, 1)) *
              sizeof(float)));
  auto* const data = reinterpret_cast<float*>(lease->buffer.data());
  return {std::move(lease), data};
}

std::size_t MemoryPool::bytes_in_use() const {
  const std::lock_guard lock(shelf_->mutex);
  return shelf_->in_use;
}

std::size_t MemoryPool::bytes_kept() const {
  const std::lock_guard lock(shelf_->mutex);
  return shelf_->kept;
}

std::size_t MemoryPool::peak_bytes() const {
  const std::lock_guard lock(shelf_->mutex);
  return shelf_->peak;
}

void MemoryPool::reset_peak() {
  const std::lock_guard lock(shelf_->mutex);
  shelf_->peak = shelf_->in_use;
}

void MemoryPool::release() {
  const std::lock_guard lock(shelf_->mutex);
  shelf_->clear();
}

MemoryPool& thread_memory_pool() {
  constexpr std::size_t kMostKept = std::size_t{64} << 20;
  thread_local MemoryPool pool(kMostKept);
  [[maybe_unused]] thread_local const bool known = [] {
    regard::detail::release_with_scratch(
        []() noexcept { thread_memory_pool().release(); });
    return true;
  }();
  return pool;
}

}  // namespace regard::ops
