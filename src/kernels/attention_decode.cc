// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_decode.h"

#include "kernels/attention_decode_memory.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_decode.cc"
#include "hwy/foreach_target.h"  // must come first
#include "hwy/highway.h"
// As in attention_forward.cc: no kernel where there are no vectors.
#if HWY_TARGET != HWY_SCALAR
#include "kernels/attention_decode-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void SplitRows(const DecodeSplit&, float*) { HWY_ABORT("no kernel"); }
void MergeRows(const DecodeSplit&, bool, std::int64_t, float*) {
  HWY_ABORT("no kernel");
}

#else

template <typename T>
void split_rows(const DecodeSplit& split, float* state) {
  for (int first = 0; first < split.row_count; first += kDecodeRows) {
    DecodePass<T>(split, first, state).run();
  }
}

void SplitRows(const DecodeSplit& split, float* state) {
  switch (split.layout.storage) {
    case KVStorage::kFloat32:
      return split_rows<float>(split, state);
    case KVStorage::kBFloat16:
      return split_rows<hwy::bfloat16_t>(split, state);
    case KVStorage::kFloat16:
      return split_rows<hwy::float16_t>(split, state);
    case KVStorage::kInt8:
      return split_rows<std::int8_t>(split, state);
  }
}

void MergeRows(const DecodeSplit& split, bool has_sink, std::int64_t count,
               float* states) {
  const std::int64_t columns = split.layout.columns();
  const std::int64_t row_floats = DecodeState::floats(columns);
  const std::int64_t split_floats = split.row_count * row_floats;
  for (int r = 0; r < split.row_count; ++r) {
    const DecodeState total(states + r * row_floats, columns);
    for (std::int64_t i = 1; i < count; ++i) {
      merge_states(
          total,
          DecodeState(states + i * split_floats + r * row_floats, columns),
          columns);
    }
    if (has_sink) add_sink(total, split.rows[r].sink, columns);
    write_row(total, split.rows[r], split.layout.d_v);
  }
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::kernels {

HWY_EXPORT(SplitRows);
HWY_EXPORT(MergeRows);

std::size_t decode_scratch_floats(const KVLayout& layout) {
  return DecodeScratch(nullptr, layout).size;
}

std::size_t decode_state_floats(const KVLayout& layout, int row_count) {
  return static_cast<std::size_t>(row_count *
                                  DecodeState::floats(layout.columns()));
}

void decode_split(const DecodeSplit& split, float* state) noexcept {
  HWY_DYNAMIC_DISPATCH(SplitRows)(split, state);
}

void decode_merge(const DecodeSplit& split, bool has_sink, std::int64_t count,
                  float* states) noexcept {
  HWY_DYNAMIC_DISPATCH(MergeRows)(split, has_sink, count, states);
}

}  // namespace regard::kernels
#endif  // HWY_ONCE
