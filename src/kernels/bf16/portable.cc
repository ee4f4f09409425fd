// SPDX-License-Identifier: Apache-2.0
#include "kernels/bf16/passes.h"
#include "kernels/bf16/paths.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/bf16/portable.cc"
#include "hwy/foreach_target.h"  // must come first
#include "hwy/highway.h"
// A machine with no vectors that we know keeps to plain loops in fp32: see
// attention_has_kernel().
#if HWY_TARGET != HWY_SCALAR
#include "kernels/bf16/differentiate-inl.h"
#include "kernels/bf16/portable-inl.h"
#else

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

#define REGARD_NO_KERNEL(name, ...) \
  void name(__VA_ARGS__) { HWY_ABORT("no kernel"); }

REGARD_NO_KERNEL(RoundRow, const void*, Storage, std::int64_t, std::int64_t,
                 Bf16Bits*)
REGARD_NO_KERNEL(PackQueries, const void* const*, int, const AttentionKeys&,
                 Bf16Bits*, const Bf16Lengths&)
bool RowIsFinite(const float*, int) { HWY_ABORT("no kernel"); }
REGARD_NO_KERNEL(ScaleRow, float*, int, float)
REGARD_NO_KERNEL(WriteRow, const float*, float, std::int64_t, Storage, void*)
REGARD_NO_KERNEL(PackPanel, const void* const*, int, Storage, std::int64_t,
                 Bf16Bits*)
REGARD_NO_KERNEL(PackPairs, const float*, std::int64_t, int, int, Bf16Bits*)
REGARD_NO_KERNEL(WriteSums, const Bf16Sums&)
REGARD_NO_KERNEL(Multiply, const Bf16Product&)
REGARD_NO_KERNEL(FinishScores, const Bf16Modifier&, const Bf16Strip&, float*)
REGARD_NO_KERNEL(Differentiate, const Bf16Differential&)
REGARD_NO_KERNEL(Drop, const Bf16Modifier&, const Bf16Strip&)
REGARD_NO_KERNEL(DenseWords, const bool* const*, std::int64_t, int, bool,
                 std::uint32_t*)
REGARD_NO_KERNEL(Score, const Bf16Head&, const Bf16Strip&)
REGARD_NO_KERNEL(AddValues, const Bf16Head&, const Bf16Strip&)
REGARD_NO_KERNEL(AddSums, const Bf16Strip&)
REGARD_NO_KERNEL(Weigh, const Bf16Head&, const Bf16Strip&)
REGARD_NO_KERNEL(WeighBelow, const Bf16Strip&)
REGARD_NO_KERNEL(PackKeys, const Bf16Bits* const*, int, Bf16Bits*, std::int64_t,
                 float*)
bool PackValues(const Bf16Bits* const*, int, Bf16Bits*) {
  HWY_ABORT("no kernel");
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET

#if HWY_ONCE
namespace regard::kernels {

HWY_EXPORT(RoundRow);
HWY_EXPORT(PackQueries);
HWY_EXPORT(RowIsFinite);
HWY_EXPORT(ScaleRow);
HWY_EXPORT(WriteRow);
HWY_EXPORT(PackPanel);
HWY_EXPORT(PackPairs);
HWY_EXPORT(WriteSums);
HWY_EXPORT(Multiply);
HWY_EXPORT(FinishScores);
HWY_EXPORT(Differentiate);
HWY_EXPORT(Drop);
HWY_EXPORT(DenseWords);
HWY_EXPORT(Score);
HWY_EXPORT(AddValues);
HWY_EXPORT(AddSums);
HWY_EXPORT(Weigh);
HWY_EXPORT(WeighBelow);
HWY_EXPORT(PackKeys);
HWY_EXPORT(PackValues);

void bf16_round_row(const void* from, Storage storage, std::int64_t n,
                    std::int64_t padded, Bf16Bits* to) noexcept {
  HWY_DYNAMIC_DISPATCH(RoundRow)(from, storage, n, padded, to);
}

void bf16_pack_queries(const void* const* rows, int blocks,
                       const AttentionKeys& keys, Bf16Bits* to,
                       const Bf16Lengths& lengths) noexcept {
  HWY_DYNAMIC_DISPATCH(PackQueries)(rows, blocks, keys, to, lengths);
}

bool bf16_row_is_finite(const float* row, int tiles) noexcept {
  return HWY_DYNAMIC_DISPATCH(RowIsFinite)(row, tiles);
}

void bf16_scale_row(float* row, int tiles, float factor) noexcept {
  HWY_DYNAMIC_DISPATCH(ScaleRow)(row, tiles, factor);
}

void bf16_write_row(const float* row, float factor, std::int64_t n,
                    Storage storage, void* out) noexcept {
  HWY_DYNAMIC_DISPATCH(WriteRow)(row, factor, n, storage, out);
}

void bf16_pack_panel(const void* const* rows, int count, Storage storage,
                     std::int64_t k, Bf16Bits* to) noexcept {
  HWY_DYNAMIC_DISPATCH(PackPanel)(rows, count, storage, k, to);
}

void bf16_pack_pairs(const float* rows, std::int64_t stride, int count,
                     int columns, Bf16Bits* to) noexcept {
  HWY_DYNAMIC_DISPATCH(PackPairs)(rows, stride, count, columns, to);
}

void bf16_write_sums(const Bf16Sums& sums) noexcept {
  HWY_DYNAMIC_DISPATCH(WriteSums)(sums);
}

void bf16_finish_scores(const Bf16Modifier& modifier, const Bf16Strip& strip,
                        float* max) noexcept {
  HWY_DYNAMIC_DISPATCH(FinishScores)(modifier, strip, max);
}

void bf16_differentiate(const Bf16Differential& job) noexcept {
  HWY_DYNAMIC_DISPATCH(Differentiate)(job);
}

void bf16_drop(const Bf16Modifier& modifier, const Bf16Strip& strip) noexcept {
  HWY_DYNAMIC_DISPATCH(Drop)(modifier, strip);
}

void bf16_dense_words(const bool* const* rows, std::int64_t key, int n,
                      bool visible_when, std::uint32_t* words) noexcept {
  HWY_DYNAMIC_DISPATCH(DenseWords)(rows, key, n, visible_when, words);
}

const Bf16Functions& bf16_portable_functions() {
  static constexpr Bf16Functions kFunctions{
      .begin = []() noexcept {},
      .end = []() noexcept {},
      .pack_keys =
          [](const Bf16Bits* const* rows, int steps, Bf16Bits* to,
             std::int64_t stride, float* norms) noexcept {
            HWY_DYNAMIC_DISPATCH(PackKeys)(rows, steps, to, stride, norms);
          },
      .pack_values =
          [](const Bf16Bits* const* rows, int tiles, Bf16Bits* to) noexcept {
            return HWY_DYNAMIC_DISPATCH(PackValues)(rows, tiles, to);
          },
      .score =
          [](const Bf16Head& head, const Bf16Strip& strip) noexcept {
            HWY_DYNAMIC_DISPATCH(Score)(head, strip);
          },
      .weigh =
          [](const Bf16Head& head, const Bf16Strip& strip) noexcept {
            HWY_DYNAMIC_DISPATCH(Weigh)(head, strip);
          },
      .weigh_below =
          [](const Bf16Strip& strip) noexcept {
            HWY_DYNAMIC_DISPATCH(WeighBelow)(strip);
          },
      .add_sums =
          [](const Bf16Strip& strip) noexcept {
            HWY_DYNAMIC_DISPATCH(AddSums)(strip);
          },
      .add_values =
          [](const Bf16Head& head, const Bf16Strip& strip) noexcept {
            HWY_DYNAMIC_DISPATCH(AddValues)(head, strip);
          },
      .multiply =
          [](const Bf16Product& product) noexcept {
            HWY_DYNAMIC_DISPATCH(Multiply)(product);
          },
      .carries = false,
      .add_full = nullptr,
  };
  return kFunctions;
}

}  // namespace regard::kernels
#endif  // HWY_ONCE
