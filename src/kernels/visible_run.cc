// SPDX-License-Identifier: Apache-2.0
#include "kernels/visible_run.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/visible_run.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway wants it.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The first key in [begin, end) whose flag is, or is not, false; else end.
std::int64_t first_key(const std::uint8_t* flags, std::int64_t begin,
                       std::int64_t end, bool wanted) {
  const hn::ScalableTag<std::uint8_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (; begin + lanes <= end; begin += lanes) {
    const auto zero = hn::Eq(hn::LoadU(d, flags + begin), hn::Zero(d));
    if (wanted ? !hn::AllTrue(d, zero) : !hn::AllFalse(d, zero)) break;
  }
  while (begin < end && (flags[begin] != 0) != wanted) ++begin;
  return begin;
}

// One past the last key in [begin, end) whose flag is as wanted; else begin.
std::int64_t last_key(const std::uint8_t* flags, std::int64_t begin,
                      std::int64_t end, bool wanted) {
  const hn::ScalableTag<std::uint8_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (; begin + lanes <= end; end -= lanes) {
    const auto zero = hn::Eq(hn::LoadU(d, flags + end - lanes), hn::Zero(d));
    if (wanted ? !hn::AllTrue(d, zero) : !hn::AllFalse(d, zero)) break;
  }
  while (begin < end && (flags[end - 1] != 0) != wanted) --end;
  return end;
}

VisibleRun Run(const bool* flags, std::int64_t begin, std::int64_t end,
               bool visible_when) {
  if (begin >= end) return {begin, begin, true};
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(flags);
  begin = first_key(bytes, begin, end, visible_when);
  end = last_key(bytes, begin, end, visible_when);
  return {begin, end, first_key(bytes, begin, end, !visible_when) == end};
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::kernels {

HWY_EXPORT(Run);

VisibleRun visible_run(const bool* flags, std::int64_t begin, std::int64_t end,
                       bool visible_when) {
  return HWY_DYNAMIC_DISPATCH(Run)(flags, begin, end, visible_when);
}

}  // namespace regard::kernels
#endif  // HWY_ONCE
