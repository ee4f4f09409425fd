// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace regard {

// Cuts arrays from one piece of memory, each from a cache line on. Without
// memory it only measures, so a list of arrays is written once: it runs with
// null, and then with used() bytes.
class MemoryLayout {
 public:
  explicit MemoryLayout(void* memory)
      : memory_(static_cast<std::byte*>(memory)) {}

  // `to` is null where there is no memory yet. Elements are not initialised.
  template <typename T, typename Count>
  void take(T*& to, Count count) {
    to = reinterpret_cast<T*>(memory_ == nullptr ? nullptr : memory_ + used_);
    used_ += (sizeof(T) * static_cast<std::size_t>(count) + kLine - 1) / kLine *
             kLine;
  }
  std::size_t used() const { return used_; }

 private:
  static constexpr std::size_t kLine = 64;
  std::byte* memory_;
  std::size_t used_ = 0;
};

}  // namespace regard
