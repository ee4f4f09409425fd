// SPDX-License-Identifier: Apache-2.0
#include "kernels/convolution.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convolution.cc"
#include "hwy/foreach_target.h"
// The line above includes this file again, once for each target.
#include "kernels/vector_ends-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE EndVec clamped(EndVec x) {
  const EndTag d;
  return hn::Min(hn::Max(x, hn::Zero(d)), hn::Set(d, 6.0f));
}

// The taps [begin, end) of three that meet the picture at `place`.
struct Taps {
  std::int64_t begin, end;
};
Taps taps_at(std::int64_t place, std::int64_t size) {
  return {place < 1 ? 1 - place : 0, place + 1 >= size ? size - place + 1 : 3};
}

void run_depthwise_row(const Depthwise& job, std::int64_t row) {
  const std::int64_t c = job.channels;
  const std::int64_t columns = (job.width + job.stride - 1) / job.stride;
  const Taps rows = taps_at(row * job.stride, job.height);
  float* const y = job.y + row * columns * c;
  // A vector of channels at a time, so that its filter stays in registers.
  over_vectors(c, [&](std::int64_t i, std::int64_t left) HWY_ATTR {
    EndVec weight[9];
    for (std::int64_t t = 0; t < 9; ++t) {
      weight[t] = load_left(job.weight + t * c + i, left);
    }
    const EndVec bias = load_left(job.bias + i, left);
    for (std::int64_t j = 0; j < columns; ++j) {
      const Taps taps = taps_at(j * job.stride, job.width);
      EndVec sum = bias;
      for (std::int64_t a = rows.begin; a < rows.end; ++a) {
        const float* const x =
            job.x +
            ((row * job.stride + a - 1) * job.width + j * job.stride - 1) * c +
            i;
        if (taps.begin == 0 && taps.end == 3) {
          sum = hn::MulAdd(load_left(x, left), weight[3 * a], sum);
          sum = hn::MulAdd(load_left(x + c, left), weight[3 * a + 1], sum);
          sum = hn::MulAdd(load_left(x + 2 * c, left), weight[3 * a + 2], sum);
          continue;
        }
        for (std::int64_t b = taps.begin; b < taps.end; ++b) {
          sum = hn::MulAdd(load_left(x + b * c, left), weight[3 * a + b], sum);
        }
      }
      store_left(clamped(sum), y + j * c + i, left);
    }
  });
}

void run_relu6(float* x, std::int64_t n) {
  over_vectors(n, [&](std::int64_t i, std::int64_t left) HWY_ATTR {
    store_left(clamped(load_left(x + i, left)), x + i, left);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::kernels {

HWY_EXPORT(run_depthwise_row);
HWY_EXPORT(run_relu6);

void depthwise_row(const Depthwise& job, std::int64_t row) noexcept {
  HWY_DYNAMIC_DISPATCH(run_depthwise_row)(job, row);
}
void relu6(float* x, std::int64_t n) noexcept {
  HWY_DYNAMIC_DISPATCH(run_relu6)(x, n);
}

}  // namespace regard::kernels
#endif  // HWY_ONCE
