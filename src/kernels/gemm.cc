// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm.cc"
#include "hwy/foreach_target.h"
// The line above includes this file again, once for each target.
#include "kernels/gemm-inl.h"
#include "kernels/gemm_few_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {

void run_gemm(const Gemm& job) {
  if (job.right == RightSide::kTransposed) {
    gemm_few_rows(job);
    return;
  }
  const bool right_rows = job.right == RightSide::kRows;
  if (job.left == LeftSide::kPacked) {
    right_rows ? gemm_panels<LeftSide::kPacked, RightSide::kRows>(job)
               : gemm_panels<LeftSide::kPacked, RightSide::kPacked>(job);
  } else {
    right_rows ? gemm_panels<LeftSide::kRows, RightSide::kRows>(job)
               : gemm_panels<LeftSide::kRows, RightSide::kPacked>(job);
  }
}

void run_pack_columns(const float* b, std::int64_t stride, std::int64_t k,
                      std::int64_t n, float* packed) {
  pack_columns_impl(b, stride, k, n, packed);
}

void run_pack_columns_transposed(const float* b, std::int64_t stride,
                                 std::int64_t k, std::int64_t n,
                                 float* packed) {
  pack_columns_transposed_impl(b, stride, k, n, packed);
}

void run_pack_rows_transposed(const float* a, std::int64_t stride,
                              std::int64_t m, std::int64_t k, float* packed) {
  pack_rows_transposed_impl(a, stride, m, k, packed);
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace regard::kernels {

HWY_EXPORT(run_gemm);
HWY_EXPORT(run_pack_columns);
HWY_EXPORT(run_pack_columns_transposed);
HWY_EXPORT(run_pack_rows_transposed);

void gemm(const Gemm& job) noexcept { HWY_DYNAMIC_DISPATCH(run_gemm)(job); }

void pack_columns(const float* b, std::int64_t stride, std::int64_t k,
                  std::int64_t n, float* packed) noexcept {
  HWY_DYNAMIC_DISPATCH(run_pack_columns)(b, stride, k, n, packed);
}

void pack_columns_transposed(const float* b, std::int64_t stride,
                             std::int64_t k, std::int64_t n,
                             float* packed) noexcept {
  HWY_DYNAMIC_DISPATCH(run_pack_columns_transposed)(b, stride, k, n, packed);
}

void pack_rows_transposed(const float* a, std::int64_t stride, std::int64_t m,
                          std::int64_t k, float* packed) noexcept {
  HWY_DYNAMIC_DISPATCH(run_pack_rows_transposed)(a, stride, m, k, packed);
}

}  // namespace regard::kernels
#endif  // HWY_ONCE
