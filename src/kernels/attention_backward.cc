// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_backward.h"

#include <algorithm>

#include "kernels/attention_scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_backward.cc"
#include "hwy/foreach_target.h"  // must come first
#include "hwy/highway.h"
#if HWY_TARGET != HWY_SCALAR
#include "kernels/attention_backward-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR  // see attention_has_kernel()

void Prepare(const BackwardHead&, std::int64_t) { HWY_ABORT("no kernel"); }
void KeyRun(const BackwardHead&, std::int64_t, std::int64_t, float*) {
  HWY_ABORT("no kernel");
}
void Finish(const BackwardHead&, std::int64_t) { HWY_ABORT("no kernel"); }

#else

void Prepare(const BackwardHead& head, std::int64_t group) {
  PrepareGroup pass(head, group);
  with_storage(head.block.keys.storage, [&](auto* type) HWY_ATTR {
    pass.run<std::remove_pointer_t<decltype(type)>>();
  });
}

void KeyRun(const BackwardHead& head, std::int64_t begin, std::int64_t end,
            float* scratch) {
  KeyRunPass pass(head, begin, end, scratch);
  with_storage(head.block.keys.storage, [&](auto* type) HWY_ATTR {
    pass.run<std::remove_pointer_t<decltype(type)>>();
  });
}

void Finish(const BackwardHead& head, std::int64_t group) {
  with_storage(head.block.keys.storage, [&](auto* type) HWY_ATTR {
    finish_group<std::remove_pointer_t<decltype(type)>>(head, group);
  });
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::kernels {

HWY_EXPORT(Prepare);
HWY_EXPORT(KeyRun);
HWY_EXPORT(Finish);

std::int64_t backward_key_run(std::int64_t d_k, std::int64_t d_v) {
  constexpr std::int64_t kFloats = 384 * 256;
  const std::int64_t columns =
      2 * (AttentionScratch::padded(d_k) + AttentionScratch::padded(d_v));
  return std::clamp<std::int64_t>(kFloats / columns / kKeyBlock, 1, 3) *
         kKeyBlock;
}

std::size_t backward_scratch_floats(std::int64_t key_run, std::int64_t d_k,
                                    std::int64_t d_v) {
  const std::int64_t k_columns = AttentionScratch::padded(d_k);
  const std::int64_t v_columns = AttentionScratch::padded(d_v);
  return static_cast<std::size_t>(key_run * (2 * (k_columns + v_columns) + 1) +
                                  2 * kKeyBlock * kGroupRows) +
         attention_scratch_floats(kGroupRows, d_k, d_v);
}

void backward_prepare(const BackwardHead& head, std::int64_t group) noexcept {
  HWY_DYNAMIC_DISPATCH(Prepare)(head, group);
}

void backward_keys(const BackwardHead& head, std::int64_t begin,
                   std::int64_t end, float* scratch) noexcept {
  HWY_DYNAMIC_DISPATCH(KeyRun)(head, begin, end, scratch);
}

void backward_finish(const BackwardHead& head, std::int64_t group) noexcept {
  HWY_DYNAMIC_DISPATCH(Finish)(head, group);
}

}  // namespace regard::kernels
#endif  // HWY_ONCE
