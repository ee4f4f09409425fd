// SPDX-License-Identifier: Apache-2.0
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "bench.h"
#include "regard/core/float16.h"
#include "regard/core/version.h"
#include "regard/kernels/targets.h"

namespace regard::bench {
namespace {

std::string& error_text() {
  thread_local std::string text;
  return text;
}

std::atomic<clockid_t> the_clock{CLOCK_MONOTONIC};

// splitmix64: one well mixed word for each index.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The sum of four 16-bit uniforms, scaled to variance 1: near enough to a
// normal for data, and quick to make by the hundred million.
float near_normal(std::uint64_t word) {
  std::int64_t sum = 0;
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<std::int64_t>((word >> (16 * i)) & 0xffffu);
  }
  return static_cast<float>(sum - 2 * 65535) * (1.7320508f / 65536.0f);
}

template <typename T>
void fill(void* data, std::int64_t count, std::uint64_t seed) {
  T* values = static_cast<T*>(data);
  const std::uint64_t base = mix(seed);
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] = T(near_normal(mix(base + static_cast<std::uint64_t>(i))));
  }
}

}  // namespace

double now() {
  timespec time{};
  clock_gettime(the_clock.load(std::memory_order_relaxed), &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

double fail(const char* text) {
  error_text() = text;
  return -1.0;
}

Visible visible_keys(const AttentionCase& c, std::int64_t query) {
  const std::int64_t kv_len = c.k.shape[2];
  if (c.mask == MaskKind::kNone || c.mask == MaskKind::kDense) {
    return {0, kv_len};
  }
  const std::int64_t position = query + kv_len - c.q.shape[2];
  const std::int64_t end = std::clamp(position + 1, std::int64_t{0}, kv_len);
  if (c.mask == MaskKind::kCausal) return {0, end};
  return {std::clamp(position + 1 - c.window, std::int64_t{0}, end), end};
}

}  // namespace regard::bench

using regard::bench::AttentionCase;
using regard::bench::ElementType;
using regard::bench::MaskKind;

extern "C" const char* regard_bench_error() {
  return regard::bench::error_text().c_str();
}

extern "C" void regard_bench_set_clock(std::int32_t clock) {
  regard::bench::the_clock =
      clock == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
}

extern "C" const char* regard_bench_version() { return regard::version(); }

extern "C" const char* regard_bench_simd() {
  thread_local std::string name;
  name = regard::simd_target();
  return name.c_str();
}

extern "C" double regard_bench_force_simd(const char* name) {
  return regard::bench::guarded([&] {
    regard::set_simd_target(name);
    return 0.0;
  });
}

extern "C" void* regard_bench_allocate(std::int64_t bytes) {
  const std::size_t size = (static_cast<std::size_t>(bytes) + 63) / 64 * 64;
  void* data = std::aligned_alloc(64, std::max<std::size_t>(size, 64));
  if (data != nullptr) std::memset(data, 0, size);
  return data;
}

extern "C" void regard_bench_release(void* data) { std::free(data); }

extern "C" void regard_bench_fill(void* data, std::int64_t count,
                                  std::int32_t type, std::uint64_t seed) {
  switch (static_cast<ElementType>(type)) {
    case ElementType::kFloat32:
      return regard::bench::fill<float>(data, count, seed);
    case ElementType::kBFloat16:
      return regard::bench::fill<regard::BFloat16>(data, count, seed);
    case ElementType::kFloat16:
      return regard::bench::fill<regard::Float16>(data, count, seed);
  }
}

extern "C" void regard_bench_fill_mask(bool* dense, std::int64_t q_len,
                                       std::int64_t kv_len, std::int32_t mask,
                                       std::int64_t window) {
  AttentionCase c{};
  c.q.shape[2] = q_len;
  c.k.shape[2] = kv_len;
  c.mask = static_cast<MaskKind>(mask);
  c.window = window;
  for (std::int64_t i = 0; i < q_len; ++i) {
    const auto [begin, end] = visible_keys(c, i);
    bool* row = dense + i * kv_len;
    std::fill(row, row + kv_len, false);
    std::fill(row + begin, row + end, true);
  }
}
