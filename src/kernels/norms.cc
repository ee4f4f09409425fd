// SPDX-License-Identifier: Apache-2.0
#include "kernels/norms.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norms.cc"
#include "hwy/foreach_target.h"
// The line above includes this file again, once for each target.
#include "kernels/norms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

void run_rms_norm(const Norm& norm) {
  for (std::int64_t row = 0; row < norm.rows; ++row) rms_norm_row(norm, row);
}

void run_layer_norm(const Norm& norm) {
  for (std::int64_t row = 0; row < norm.rows; ++row) layer_norm_row(norm, row);
}

void run_rms_norm_backward(const NormBackward& norm) {
  for (std::int64_t row = 0; row < norm.rows; ++row) {
    norm_backward_row<false>(norm, row);
  }
}

void run_layer_norm_backward(const NormBackward& norm) {
  for (std::int64_t row = 0; row < norm.rows; ++row) {
    norm_backward_row<true>(norm, row);
  }
}

void run_norm_parameter_gradients(const NormBackward& norm, std::int64_t begin,
                                  std::int64_t end, float* d_gamma,
                                  float* d_beta) {
  constexpr int kVecs = 4;
  std::int64_t col = begin;
  for (; col + kVecs * kEndLanes <= end; col += kVecs * kEndLanes) {
    norm_parameter_columns<kVecs>(norm, col, kEndLanes, d_gamma, d_beta);
  }
  for (; col < end; col += kEndLanes) {
    norm_parameter_columns<1>(norm, col, std::min(kEndLanes, end - col),
                              d_gamma, d_beta);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::kernels {

HWY_EXPORT(run_rms_norm);
HWY_EXPORT(run_layer_norm);
HWY_EXPORT(run_rms_norm_backward);
HWY_EXPORT(run_layer_norm_backward);
HWY_EXPORT(run_norm_parameter_gradients);

void rms_norm(const Norm& norm) noexcept {
  HWY_DYNAMIC_DISPATCH(run_rms_norm)(norm);
}

void layer_norm(const Norm& norm) noexcept {
  HWY_DYNAMIC_DISPATCH(run_layer_norm)(norm);
}

void rms_norm_backward(const NormBackward& norm) noexcept {
  HWY_DYNAMIC_DISPATCH(run_rms_norm_backward)(norm);
}

void layer_norm_backward(const NormBackward& norm) noexcept {
  HWY_DYNAMIC_DISPATCH(run_layer_norm_backward)(norm);
}

void norm_parameter_gradients(const NormBackward& norm, std::int64_t begin,
                              std::int64_t end, float* d_gamma,
                              float* d_beta) noexcept {
  HWY_DYNAMIC_DISPATCH(run_norm_parameter_gradients)
  (norm, begin, end, d_gamma, d_beta);
}

}  // namespace regard::kernels
#endif  // HWY_ONCE
