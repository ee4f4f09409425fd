// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace regard {

// Bytes that start at a multiple of kAlignment: a cache line, and the widest
// vector. Not initialised. An empty buffer owns nothing.
class AlignedBuffer {
 public:
  static constexpr std::size_t kAlignment = 64;

  AlignedBuffer() = default;
  // Throws IoError when the memory cannot be had.
  explicit AlignedBuffer(std::size_t bytes);

  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* data) const noexcept;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

// Two scratches of the calling thread, so that a call and the tasks that it
// runs on the same thread do not share one.
enum class Scratch { kTask, kCall };

// Scratch memory of the calling thread: at least `bytes`, aligned like an
// AlignedBuffer, kept for the thread's next call so that steady state allocates
// nothing. A second call on the same thread may move and overwrite it.
std::byte* thread_scratch(std::size_t bytes, Scratch scratch = Scratch::kTask);

// Gives back all memory that the calling thread keeps for its next calls.
void release_thread_scratch() noexcept;

}  // namespace regard
