// SPDX-License-Identifier: Apache-2.0
// The paths of bf16 compute, its matrix product, and what the tiles alone can
// do, for bench/bf16.py.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "bench.h"
#include "kernels/bf16/cpu.h"
#include "kernels/bf16/gemm.h"
#include "kernels/bf16/paths.h"
#include "regard/core/aligned_buffer.h"
#include "regard/core/float16.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace regard::bench {
namespace {

// c = a b^T, a and b bf16 and c float, contiguous, with b packed before the
// clock runs, as a layer has its weights. One thread.
double run_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const void* a,
                const void* b, void* c, std::int64_t calls) {
  using kernels::Storage;
  const auto size = static_cast<std::size_t>(kernels::bf16_packed_size(n, k));
  AlignedBuffer packed(size * sizeof(kernels::Bf16Bits));
  auto* const right = reinterpret_cast<kernels::Bf16Bits*>(packed.data());
  kernels::bf16_pack_right({b, Storage::kBFloat16, k}, n, k, right);
  const std::int64_t rows = kernels::bf16_gemm_rows(k);
  AlignedBuffer scratch(kernels::bf16_gemm_scratch_bytes(rows, k));
  return timed(calls, [&] {
    for (std::int64_t first = 0; first < m; first += rows) {
      kernels::bf16_gemm({.m = std::min(rows, m - first),
                          .n = n,
                          .k = k,
                          .a = {static_cast<const BFloat16*>(a) + first * k,
                                Storage::kBFloat16, k},
                          .b = right,
                          .c = static_cast<float*>(c) + first * n,
                          .c_stride = n},
                         scratch.data());
    }
  });
}

#if defined(__x86_64__)

// Products of numbers like those of real work: the clock falls with the bits
// that change, so zeros would promise too much. From registers alone, or with
// every tile loaded from the first cache for each two products, as a product of
// matrices has to.
template <bool kLoaded>
__attribute__((target("amx-tile,amx-bf16"))) double run_tiles(
    const std::uint16_t* numbers, std::int64_t rounds) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::int64_t i = 0; i < rounds; ++i) {
    if (kLoaded || i == 0) {
      _tile_loadd(4, numbers, 64);
      _tile_loadd(6, numbers + 1024, 64);
      _tile_loadd(7, numbers + 1536, 64);
      _tile_loadd(5, numbers + 512, 64);
    }
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  return static_cast<double>(rounds) * 4 * 2 * 16 * 16 * 32;
}

#else

template <bool kLoaded>
double run_tiles(const std::uint16_t*, std::int64_t) {
  return 0;
}

#endif

}  // namespace
}  // namespace regard::bench

// 0: AMX, 1: VDPBF16PS, 2: floats. Fails where the machine has no such path.
extern "C" double regard_bench_bf16_path(std::int32_t path) {
  if (path < 0 || path > 2 ||
      !regard::kernels::choose_bf16_path(
          static_cast<regard::kernels::Bf16Path>(path))) {
    return regard::bench::fail("bf16_path: this machine has no such path");
  }
  return 0;
}

extern "C" double regard_bench_bf16_gemm(std::int64_t m, std::int64_t n,
                                         std::int64_t k, const void* a,
                                         const void* b, void* c,
                                         std::int64_t calls) {
  return regard::bench::guarded(
      [&] { return regard::bench::run_gemm(m, n, k, a, b, c, calls); });
}

// Flops a second of one thread's tiles, for about `seconds`: from registers, or
// loaded from the first cache.
extern "C" double regard_bench_amx_peak(std::int32_t loaded, double seconds) {
  using regard::bench::now;
  if (!regard::kernels::bf16_path_available(regard::kernels::Bf16Path::kAmx)) {
    return regard::bench::fail("amx_peak: no AMX here");
  }
  alignas(64) static std::uint16_t numbers[4 * 512];
  regard_bench_fill(numbers, 4 * 512, 1, 3);
  const auto run = loaded != 0 ? regard::bench::run_tiles<true>
                               : regard::bench::run_tiles<false>;
  const auto& f = *regard::kernels::bf16_amx_functions();
  f.begin();
  double flops = 0, spent = 0;
  const double start = now();
  do {
    flops += run(numbers, 1000);
    spent = now() - start;
  } while (spent < seconds);
  f.end();
  return flops / spent;
}
