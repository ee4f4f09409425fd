// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_weights.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_weights.cc"
#include "hwy/foreach_target.h"  // must come first
#include "hwy/highway.h"
// No kernel for a machine without vectors: see attention_has_kernel().
#if HWY_TARGET != HWY_SCALAR
#include "kernels/attention_weights-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void Weights(const AttentionBlock&, const AttentionWeights&) {
  HWY_ABORT("no kernel");
}
void SumsToRows(const AttentionWeights&, int) { HWY_ABORT("no kernel"); }
double Entropy(const float*, std::int64_t) { HWY_ABORT("no kernel"); }
std::int64_t Above(const float*, std::int64_t, std::int64_t, float) {
  HWY_ABORT("no kernel");
}

#else

void Weights(const AttentionBlock& block, const AttentionWeights& to) {
  WeightsPass(block, to).run();
}
void SumsToRows(const AttentionWeights& to, int count) {
  tile_to_rows(to.sums, 0, to.keys, to, count);
}
double Entropy(const float* weights, std::int64_t count) {
  return entropy(weights, count);
}
std::int64_t Above(const float* weights, std::int64_t from, std::int64_t count,
                   float least) {
  return first_above(weights, from, count, least);
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::kernels {

HWY_EXPORT(Weights);
HWY_EXPORT(SumsToRows);
HWY_EXPORT(Entropy);
HWY_EXPORT(Above);

void attention_weights_block(const AttentionBlock& block,
                             const AttentionWeights& to) noexcept {
  HWY_DYNAMIC_DISPATCH(Weights)(block, to);
}

void attention_sums_to_rows(const AttentionWeights& to, int count) noexcept {
  HWY_DYNAMIC_DISPATCH(SumsToRows)(to, count);
}

double weights_entropy(const float* weights, std::int64_t count) noexcept {
  return HWY_DYNAMIC_DISPATCH(Entropy)(weights, count);
}

std::int64_t weights_above(const float* weights, std::int64_t from,
                           std::int64_t count, float least) noexcept {
  return HWY_DYNAMIC_DISPATCH(Above)(weights, from, count, least);
}

}  // namespace regard::kernels
#endif  // HWY_ONCE
