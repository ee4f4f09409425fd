// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>

#include "regard/tensor/tensor_view.h"

// The C interface of libregard_bench, called by bench/lib/native.py through
// ctypes. Whatever is timed in C++ is timed here, so that Python's own cost is
// never part of regard's. Functions that return seconds return a negative
// number when they fail; regard_bench_error() then says why.

namespace regard::bench {

enum class ElementType : std::int32_t { kFloat32, kBFloat16, kFloat16 };
enum class MaskKind : std::int32_t { kNone, kCausal, kWindow, kDense };

// A tensor of rank four. Strides count elements and the last one is 1.
struct Array {
  void* data;
  std::int64_t shape[4];
  std::int64_t strides[4];
};

// One attention, whoever computes it. Mirrored by bench/lib/native.py.
struct AttentionCase {
  Array q, k, v, out;  // as attention_forward has them
  // [q_len, kv_len], true is visible: the pattern of the mask, written out.
  // Read when mask is kDense.
  const bool* dense;
  std::int64_t window;  // keys a row sees, its own included; of kWindow
  ElementType type;
  MaskKind mask;
  std::uint64_t dropout_seed;
  float dropout_rate;
  std::int32_t threads;
  std::int32_t in_bf16;  // not 0: regard's products are of bf16 numbers
};

// The same elements; none where there is no data.
template <typename T>
TensorView<T, 4> view(const Array& a) {
  if (a.data == nullptr) return {};
  return {static_cast<T*>(a.data),
          {a.shape[0], a.shape[1], a.shape[2], a.shape[3]},
          {a.strides[0], a.strides[1], a.strides[2], a.strides[3]}};
}

// Seconds on the clock that regard_bench_set_clock chose.
double now();

// Keeps the text for regard_bench_error() and returns a negative number.
double fail(const char* text);

// What body() returns, or what fail() does if it throws.
template <typename Body>
double guarded(const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}

// What make() returns, or null if it throws; regard_bench_error() says why.
template <typename Make>
auto made(const Make& make) -> decltype(make()) {
  try {
    return make();
  } catch (const std::exception& error) {
    fail(error.what());
    return nullptr;
  }
}

// Seconds that body() takes, `calls` times one after the other.
template <typename Body>
double timed(std::int64_t calls, const Body& body) {
  const double start = now();
  for (std::int64_t i = 0; i < calls; ++i) body();
  return now() - start;
}

// The keys of one row that a built-in mask shows, [begin, end).
struct Visible {
  std::int64_t begin, end;
};
Visible visible_keys(const AttentionCase& c, std::int64_t query);

}  // namespace regard::bench

extern "C" {

const char* regard_bench_error();

// 0: the wall's time. 1: the CPU time of the calling thread, which is what can
// be trusted for one thread while others keep the machine busy.
void regard_bench_set_clock(std::int32_t clock);

// 64-byte aligned and zeroed, so that every page is there before the clock
// runs.
void* regard_bench_allocate(std::int64_t bytes);
void regard_bench_release(void* data);

// About normal (mean 0, variance 1), a pure function of seed and index.
void regard_bench_fill(void* data, std::int64_t count, std::int32_t type,
                       std::uint64_t seed);
// Writes out the pattern of a built-in mask.
void regard_bench_fill_mask(bool* dense, std::int64_t q_len,
                            std::int64_t kv_len, std::int32_t mask,
                            std::int64_t window);

// Seconds that `calls` calls took, one after the other.
double regard_bench_attention(const regard::bench::AttentionCase* c,
                              std::int64_t calls);
double regard_bench_openblas_attention(const regard::bench::AttentionCase* c,
                                       std::int64_t calls);
// The version, or null when built without OpenBLAS.
const char* regard_bench_openblas();

// Compares `rows` rows of c->out, chosen by seed, first and last always among
// them, with the definition computed in double. error is the largest difference
// (infinite for NaN) and magnitude the largest true value. Dropout is not
// applied to the truth, because everybody draws another pattern: noise is then
// the root mean square of each difference over the deviation that dropout at
// c's rate must cause, so 1 up to chance.
struct regard_bench_comparison {
  double error, magnitude, noise;
};
double regard_bench_compare(const regard::bench::AttentionCase* c,
                            std::int64_t rows, std::uint64_t seed,
                            regard_bench_comparison* result);

// The FMA peak: multiply-adds from registers, nothing else, on the SIMD target
// that regard uses. Flops a second of `threads` threads that run for about
// `seconds`.
double regard_bench_peak(std::int32_t threads, double seconds);

// The SIMD target that regard uses, in Highway's words ("AVX3" is AVX-512).
// Forcing one holds for the process.
const char* regard_bench_simd();
double regard_bench_force_simd(const char* name);
const char* regard_bench_version();

}  // extern "C"
