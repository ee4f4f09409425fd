// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_forward.h"

#include "kernels/attention_scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_forward.cc"
#include "hwy/foreach_target.h"  // must come first
#include "hwy/highway.h"
// A machine with no vectors that we know keeps to the plain loops of
// attention/plain.cc: see attention_has_kernel().
#if HWY_TARGET != HWY_SCALAR
#include "kernels/attention_forward-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

bool HasKernel() { return HWY_TARGET != HWY_SCALAR; }

#if HWY_TARGET == HWY_SCALAR

void Forward(const AttentionBlock&) { HWY_ABORT("no kernel"); }
void Split(const AttentionBlock&, std::int64_t, float*) {
  HWY_ABORT("no kernel");
}
void Merge(const AttentionBlock&, std::int64_t, float*) {
  HWY_ABORT("no kernel");
}

#else

bool run(const AttentionBlock& block, ScoreBlock& scores, bool careful) {
  KeepNoWeights keep;
  return run_forward(block, scores, careful, keep);
}

void Forward(const AttentionBlock& block) {
  ScoreBlock scores(block);
  if (!run(block, scores, false)) run(block, scores, true);
}

void Split(const AttentionBlock& block, std::int64_t split, float* state) {
  ScoreBlock scores(block);
  ForwardPass pass(block, scores, false);
  KeepNoWeights keep;
  pass.run_split(split, SplitState(state, scores.groups() * kGroupRows), keep);
}

void Merge(const AttentionBlock& block, std::int64_t count, float* states) {
  ScoreBlock scores(block);
  ForwardPass pass(block, scores, false);
  const int rows = scores.groups() * kGroupRows;
  const SplitState total(states, rows);
  const auto size = static_cast<std::int64_t>(
      attention_state_floats(block.row_count, block.keys.d_v));
  for (std::int64_t i = 1; i < count; ++i) {
    pass.merge(total, SplitState(states + i * size, rows));
  }
  if (block.has_sink) pass.add_sinks(total);
  if (!pass.write(total)) run(block, scores, true);
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::kernels {

HWY_EXPORT(HasKernel);
HWY_EXPORT(Forward);
HWY_EXPORT(Split);
HWY_EXPORT(Merge);

bool attention_has_kernel() { return HWY_DYNAMIC_DISPATCH(HasKernel)(); }

std::size_t attention_scratch_floats(int row_count, std::int64_t d_k,
                                     std::int64_t d_v) {
  return AttentionScratch(nullptr, row_count, d_k, d_v).size;
}

std::size_t attention_state_floats(int row_count, std::int64_t d_v) {
  const std::int64_t rows =
      (row_count + kGroupRows - 1) / kGroupRows * kGroupRows;
  return static_cast<std::size_t>(rows * (2 + AttentionScratch::padded(d_v)));
}

void attention_forward_block(const AttentionBlock& block) noexcept {
  HWY_DYNAMIC_DISPATCH(Forward)(block);
}

void attention_split(const AttentionBlock& block, std::int64_t split,
                     float* state) noexcept {
  HWY_DYNAMIC_DISPATCH(Split)(block, split, state);
}

void attention_merge(const AttentionBlock& block, std::int64_t count,
                     float* states) noexcept {
  HWY_DYNAMIC_DISPATCH(Merge)(block, count, states);
}

}  // namespace regard::kernels
#endif  // HWY_ONCE
