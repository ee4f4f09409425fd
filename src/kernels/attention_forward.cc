// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_forward.h"

#include "kernels/attention_scratch.h"
#include "kernels/attention_states.h"
#include "kernels/attention_weights.h"

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
bool ForwardKeeping(const AttentionBlock&, const AttentionWeights&) {
  HWY_ABORT("no kernel");
}
void Split(const AttentionBlock&, std::int64_t, float*) {
  HWY_ABORT("no kernel");
}
void Merge(const AttentionBlock&, std::int64_t, float*) {
  HWY_ABORT("no kernel");
}
void AddSplits(const AttentionBlock&, std::int64_t, std::int64_t, float*, bool,
               bool) {
  HWY_ABORT("no kernel");
}
bool Finish(const AttentionBlock&, float*) { HWY_ABORT("no kernel"); }

#else

// Where run() leaves maxima and sums.
SplitState total_of(const AttentionBlock& block) {
  const AttentionScratch memory(block.scratch, block.row_count, block.keys.d_k,
                                block.keys.d_v);
  return {memory.states[0],
          (block.row_count + kGroupRows - 1) / kGroupRows * kGroupRows};
}

// All splits; false if the fast way met a value that is not finite.
HWY_NOINLINE bool run(const AttentionBlock& block, ScoreBlock& scores,
                      bool skip_zeros, KeptWeights* kept) {
  const AttentionScratch memory(block.scratch, block.row_count, block.keys.d_k,
                                block.keys.d_v);
  ForwardPass pass(block, scores, skip_zeros, kept);
  const SplitState total = total_of(block);
  const SplitState part(memory.states[1], scores.groups() * kGroupRows);
  const std::int64_t first = scores.begin() / kSplitKeys;
  pass.run_split(first, total);
  for (std::int64_t s = first + 1; s * kSplitKeys < scores.end(); ++s) {
    pass.run_split(s, part);
    pass.merge(total, part);
  }
  if (block.has_sink) pass.add_sinks(total);
  return pass.write(total) || skip_zeros;
}

void Forward(const AttentionBlock& block) {
  ScoreBlock scores(block);
  if (!run(block, scores, false, nullptr)) run(block, scores, true, nullptr);
}

bool ForwardKeeping(const AttentionBlock& block, const AttentionWeights& to) {
  ScoreBlock scores(block);
  KeptWeights kept(block, to);
  bool finite = run(block, scores, false, &kept);
  if (!finite) run(block, scores, true, nullptr);
  const SplitState total = total_of(block);
  for (int r = 0; r < block.row_count; ++r) {
    finite = finite && total.sum[r] - total.sum[r] == 0;
  }
  if (finite) kept.put(total.max, total.sum);
  return finite;
}

// Once in the code for each target: passes are large.
HWY_NOINLINE void AddSplits(const AttentionBlock& block, std::int64_t first,
                            std::int64_t last, float* state, bool started,
                            bool skip_zeros) {
  const AttentionScratch memory(block.scratch, block.row_count, block.keys.d_k,
                                block.keys.d_v);
  ScoreBlock scores(block);
  ForwardPass pass(block, scores, skip_zeros, nullptr);
  const SplitState total(state, scores.groups() * kGroupRows);
  const SplitState part(memory.states[1], scores.groups() * kGroupRows);
  for (std::int64_t s = first; s < last; ++s) {
    pass.run_split(s, started ? part : total);
    if (started) pass.merge(total, part);
    started = true;
  }
}

HWY_NOINLINE bool Finish(const AttentionBlock& block, float* state) {
  ScoreBlock scores(block);
  ForwardPass pass(block, scores, false, nullptr);
  const SplitState total(state, scores.groups() * kGroupRows);
  if (block.has_sink) pass.add_sinks(total);
  return pass.write(total);
}

void Split(const AttentionBlock& block, std::int64_t split, float* state) {
  AddSplits(block, split, split + 1, state, false, false);
}

void Merge(const AttentionBlock& block, std::int64_t count, float* states) {
  ScoreBlock scores(block);
  const ForwardPass pass(block, scores, false, nullptr);
  const int rows = scores.groups() * kGroupRows;
  const auto size = static_cast<std::int64_t>(
      attention_state_floats(block.row_count, block.keys.d_v));
  for (std::int64_t i = 1; i < count; ++i) {
    pass.merge(SplitState(states, rows), SplitState(states + i * size, rows));
  }
  if (!Finish(block, states)) run(block, scores, true, nullptr);
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::kernels {

HWY_EXPORT(HasKernel);
HWY_EXPORT(Forward);
HWY_EXPORT(ForwardKeeping);
HWY_EXPORT(Split);
HWY_EXPORT(Merge);
HWY_EXPORT(AddSplits);
HWY_EXPORT(Finish);

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

void attention_forward_weights(const AttentionBlock& block,
                               const AttentionWeights& to) noexcept {
  // What is not finite reaches the weights by their own way.
  if (!HWY_DYNAMIC_DISPATCH(ForwardKeeping)(block, to)) {
    attention_weights_block(block, to);
  }
}

void attention_split(const AttentionBlock& block, std::int64_t split,
                     float* state) noexcept {
  HWY_DYNAMIC_DISPATCH(Split)(block, split, state);
}

void attention_merge(const AttentionBlock& block, std::int64_t count,
                     float* states) noexcept {
  HWY_DYNAMIC_DISPATCH(Merge)(block, count, states);
}

void attention_add_splits(const AttentionBlock& block, std::int64_t first,
                          std::int64_t last, float* state, bool started,
                          bool skip_zeros) noexcept {
  HWY_DYNAMIC_DISPATCH(AddSplits)
  (block, first, last, state, started, skip_zeros);
}

bool attention_finish(const AttentionBlock& block, float* state) noexcept {
  return HWY_DYNAMIC_DISPATCH(Finish)(block, state);
}

}  // namespace regard::kernels
#endif  // HWY_ONCE
