// SPDX-License-Identifier: Apache-2.0
#include "regard/core/aligned_buffer.h"

#include <array>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "core/kept_memory.h"
#include "regard/core/error.h"

namespace regard {
namespace {

// What is this large is read from end to end: with pages of 2 MB the processor
// looks up one address in 512, and the system clears it in 512 times fewer
// steps. Only a wish, so nobody checks it.
void wish_for_huge_pages([[maybe_unused]] void* memory,
                         [[maybe_unused]] std::size_t bytes) {
#if defined(__linux__)
  constexpr std::uintptr_t kHuge = 2 << 20;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t first = (begin + kHuge - 1) / kHuge * kHuge;
  const std::uintptr_t last = (begin + bytes) / kHuge * kHuge;
  if (first < last) {
    madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  }
#endif
}

}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t bytes) {
  if (bytes == 0) return;
  void* memory = nullptr;
  // Pointer differences are signed: no larger object can exist.
  if (bytes <= static_cast<std::size_t>(PTRDIFF_MAX) - kAlignment) {
    memory = ::operator new (bytes, std::align_val_t{kAlignment}, std::nothrow);
  }
  if (memory == nullptr) {
    throw_io_error("AlignedBuffer", "the system has no memory for ", bytes,
                   " bytes");
  }
  wish_for_huge_pages(memory, bytes);
  data_.reset(static_cast<std::byte*>(memory));
  size_ = bytes;
}

void AlignedBuffer::Free::operator()(std::byte* data) const noexcept {
  ::operator delete (data, std::align_val_t{kAlignment});
}

namespace {

std::array<AlignedBuffer, 2>& scratches_of_this_thread() {
  thread_local std::array<AlignedBuffer, 2> buffers;  // of each Scratch
  return buffers;
}
AlignedBuffer& scratch_of_this_thread(Scratch scratch) {
  return scratches_of_this_thread()[static_cast<std::size_t>(scratch)];
}

std::vector<void (*)() noexcept>& releases_of_this_thread() {
  thread_local std::vector<void (*)() noexcept> releases;
  return releases;
}

}  // namespace

std::byte* thread_scratch(std::size_t bytes, Scratch scratch) {
  AlignedBuffer& buffer = scratch_of_this_thread(scratch);
  if (buffer.size() < bytes) {
    // The old one goes first: nobody may still use it, and both together
    // could be more than there is.
    buffer = AlignedBuffer();
    buffer = AlignedBuffer(bytes);
  }
  return buffer.data();
}

void release_thread_scratch() noexcept {
  scratch_of_this_thread(Scratch::kTask) = AlignedBuffer();
  scratch_of_this_thread(Scratch::kCall) = AlignedBuffer();
  for (void (*const release)() noexcept : releases_of_this_thread()) release();
}

void detail::release_with_scratch(void (*release)() noexcept) {
  releases_of_this_thread().push_back(release);
}

detail::ScratchAside::ScratchAside() noexcept
    : kept_(std::move(scratches_of_this_thread())) {}

detail::ScratchAside::~ScratchAside() {
  scratches_of_this_thread() = std::move(kept_);
}

}  // namespace regard
