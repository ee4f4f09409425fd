// SPDX-License-Identifier: Apache-2.0
#include "kernels/adam.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adam.cc"
#include "hwy/foreach_target.h"
// The line above includes this file again, once for each target.
#include "kernels/vector_ends-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

void run_adam_step(const AdamStep& step, const float* gradient, std::int64_t n,
                   float* value, float* m, float* v) {
  const EndTag d;
  const EndVec beta1 = hn::Set(d, step.beta1);
  const EndVec beta2 = hn::Set(d, step.beta2);
  const EndVec rest1 = hn::Set(d, 1.0f - step.beta1);
  const EndVec rest2 = hn::Set(d, 1.0f - step.beta2);
  const EndVec epsilon = hn::Set(d, step.epsilon);
  const EndVec size = hn::Set(d, step.step_size);
  const EndVec root = hn::Set(d, step.root_scale);
  const EndVec scale = hn::Set(d, step.gradient_scale);
  const EndVec decay = hn::Set(d, step.gradient_decay);
  const EndVec keep = hn::Set(d, step.value_scale);
  over_vectors(n, [&](std::int64_t i, std::int64_t left) HWY_ATTR {
    const EndVec x = load_left(value + i, left);
    const EndVec g =
        hn::MulAdd(load_left(gradient + i, left), scale, hn::Mul(decay, x));
    const EndVec m1 =
        hn::MulAdd(rest1, g, hn::Mul(beta1, load_left(m + i, left)));
    const EndVec v1 = hn::MulAdd(rest2, hn::Mul(g, g),
                                 hn::Mul(beta2, load_left(v + i, left)));
    const EndVec below = hn::MulAdd(hn::Sqrt(v1), root, epsilon);
    const EndVec moved =
        hn::NegMulAdd(size, hn::Div(m1, below), hn::Mul(keep, x));
    store_left(m1, m + i, left);
    store_left(v1, v + i, left);
    store_left(moved, value + i, left);
  });
}

double run_sum_of_squares(const float* x, std::int64_t n) {
  constexpr std::int64_t kBlock = 4096;
  constexpr int kVecs = static_cast<int>(16 / kEndLanes);
  const EndTag d;
  double total = 0;
  for (std::int64_t first = 0; first < n; first += kBlock) {
    const std::int64_t end = std::min(n, first + kBlock);
    EndVec sums[kVecs];
    for (EndVec& sum : sums) sum = hn::Zero(d);
    std::int64_t i = first;
    for (; i + 16 <= end; i += 16) {
      for (int v = 0; v < kVecs; ++v) {
        const EndVec a = hn::LoadU(d, x + i + v * kEndLanes);
        sums[v] = hn::MulAdd(a, a, sums[v]);
      }
    }
    for (int v = 0; i < end; ++v, i += kEndLanes) {
      const EndVec a = load_left(x + i, end - i);
      sums[v] = hn::MulAdd(a, a, sums[v]);
    }
    HWY_ALIGN float chains[16];
    for (int v = 0; v < kVecs; ++v) {
      hn::Store(sums[v], d, chains + v * kEndLanes);
    }
    for (const float chain : chains) total += static_cast<double>(chain);
  }
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::kernels {

HWY_EXPORT(run_adam_step);
HWY_EXPORT(run_sum_of_squares);

void adam_step(const AdamStep& step, const float* gradient, std::int64_t n,
               float* value, float* m, float* v) noexcept {
  HWY_DYNAMIC_DISPATCH(run_adam_step)(step, gradient, n, value, m, v);
}

double sum_of_squares(const float* x, std::int64_t n) noexcept {
  return HWY_DYNAMIC_DISPATCH(run_sum_of_squares)(x, n);
}

}  // namespace regard::kernels
#endif  // HWY_ONCE
