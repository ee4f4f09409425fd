// SPDX-License-Identifier: Apache-2.0
// How many multiply-adds a second this machine does from registers alone: the
// yardstick of every percentage. One function for each SIMD target, so that
// AVX2 code is compared with the AVX2 peak.
#include <barrier>
#include <cstdint>
#include <thread>
#include <vector>

#include "bench.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "peak.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace regard::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains: two ports times a latency of four needs eight, and twelve with
// their two constants still fit sixteen registers. Values stay near 1, so there
// are no denormals and the multiplier sees real bits. Returns flops done.
double run_fma(std::int64_t steps, float* sink) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 0.98765432f);
  const auto b = hn::Set(d, 0.01234568f);
  auto c0 = hn::Set(d, 0.1f), c1 = hn::Set(d, 0.2f), c2 = hn::Set(d, 0.3f);
  auto c3 = hn::Set(d, 0.4f), c4 = hn::Set(d, 0.5f), c5 = hn::Set(d, 0.6f);
  auto c6 = hn::Set(d, 0.7f), c7 = hn::Set(d, 0.8f), c8 = hn::Set(d, 0.9f);
  auto c9 = hn::Set(d, 1.0f), c10 = hn::Set(d, 1.1f), c11 = hn::Set(d, 1.2f);
  for (std::int64_t i = 0; i < steps; ++i) {
    c0 = hn::MulAdd(c0, a, b);
    c1 = hn::MulAdd(c1, a, b);
    c2 = hn::MulAdd(c2, a, b);
    c3 = hn::MulAdd(c3, a, b);
    c4 = hn::MulAdd(c4, a, b);
    c5 = hn::MulAdd(c5, a, b);
    c6 = hn::MulAdd(c6, a, b);
    c7 = hn::MulAdd(c7, a, b);
    c8 = hn::MulAdd(c8, a, b);
    c9 = hn::MulAdd(c9, a, b);
    c10 = hn::MulAdd(c10, a, b);
    c11 = hn::MulAdd(c11, a, b);
  }
  const auto s0 = hn::Add(hn::Add(c0, c1), hn::Add(c2, c3));
  const auto s1 = hn::Add(hn::Add(c4, c5), hn::Add(c6, c7));
  const auto s2 = hn::Add(hn::Add(c8, c9), hn::Add(c10, c11));
  *sink = hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, hn::Add(s1, s2))));
  return 2.0 * 12.0 * static_cast<double>(hn::Lanes(d)) *
         static_cast<double>(steps);
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::bench {

HWY_EXPORT(run_fma);

namespace {

// About 30 microseconds between two looks at the clock.
constexpr std::int64_t kSteps = 1 << 14;

double rate_of_this_thread(double seconds) {
  [[maybe_unused]] volatile float keep = 0.0f;  // so that the loop stays
  double flops = 0.0;
  const double start = now();
  for (;;) {
    float sink = 0.0f;
    flops += HWY_DYNAMIC_DISPATCH(run_fma)(kSteps, &sink);
    keep = sink;
    const double spent = now() - start;
    if (spent >= seconds) return flops / spent;
  }
}

}  // namespace
}  // namespace regard::bench

extern "C" double regard_bench_peak(std::int32_t threads, double seconds) {
  using regard::bench::rate_of_this_thread;
  if (threads < 1) return regard::bench::fail("peak: no threads");
  std::vector<double> rates(threads);
  std::barrier start(threads);
  const auto work = [&](int t) {
    start.arrive_and_wait();
    rates[t] = rate_of_this_thread(seconds);
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
  work(0);
  for (std::thread& thread : others) thread.join();
  double sum = 0.0;
  for (const double rate : rates) sum += rate;
  return sum;
}
#endif  // HWY_ONCE
