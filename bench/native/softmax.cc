// SPDX-License-Identifier: Apache-2.0
#include "softmax.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "softmax.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace regard::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

float exp_row_simd(float* row, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t whole = count / lanes * lanes;
  auto tops = hn::Set(d, row[0]);
  for (std::int64_t j = 0; j < whole; j += lanes) {
    tops = hn::Max(tops, hn::LoadU(d, row + j));
  }
  float top = hn::GetLane(hn::MaxOfLanes(d, tops));
  for (std::int64_t j = whole; j < count; ++j) top = std::max(top, row[j]);

  auto sums = hn::Zero(d);
  for (std::int64_t j = 0; j < whole; j += lanes) {
    const auto x = hn::Sub(hn::LoadU(d, row + j), hn::Set(d, top));
    const auto e = hn::Exp(d, x);
    hn::StoreU(e, d, row + j);
    sums = hn::Add(sums, e);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (std::int64_t j = whole; j < count; ++j) {
    row[j] = std::exp(row[j] - top);
    sum += row[j];
  }
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::bench {

HWY_EXPORT(exp_row_simd);

float exp_row(float* row, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(exp_row_simd)(row, count);
}

}  // namespace regard::bench
#endif  // HWY_ONCE
