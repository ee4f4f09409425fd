// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Norms of rows, forward and backward. A sum over a row runs in kNormChains
// chains: element i belongs to chain i % kNormChains, each chain goes in index
// order, and the chains are added pairwise, half of them onto the other half.
// So the bits of a row depend on the row alone: not on the other rows, on who
// computes them, or on the width of the vectors.
namespace regard::kernels {

inline constexpr std::int64_t kNormChains = 32;

// Sums over rows, for the gradients of gamma and beta, run in index order in
// blocks of so many rows, anchored at row 0; the sums of blocks are added in
// index order, too.
inline constexpr std::int64_t kNormRowBlock = 64;

// One call's rows, each [dim]. Any size may be zero; a row of no elements has
// nothing to write but its mean 0 and rstd 1 / sqrt(eps).
struct Norm {
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  const float* x = nullptr;  // row r at x + r * x_stride
  std::int64_t x_stride = 0;
  const float* gamma = nullptr;  // [dim], or null for ones
  const float* beta = nullptr;   // [dim], or null for zeros; layer_norm only
  float eps = 0;
  float* y = nullptr;  // may be x, with the same stride
  std::int64_t y_stride = 0;
  // Kept for backward, [rows] each, or null. rms_norm has no mean.
  float* mean = nullptr;
  float* rstd = nullptr;
};

// y = x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + eps)
void rms_norm(const Norm& norm) noexcept;

// y = (x - mean) * rstd * gamma + beta, rstd = 1 / sqrt(mean((x - mean)^2) +
// eps)
void layer_norm(const Norm& norm) noexcept;

// The gradients of the above. mean is null for rms_norm.
struct NormBackward {
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  const float* gamma = nullptr;  // [dim], or null for ones
  const float* mean = nullptr;   // [rows], of the forward pass
  const float* rstd = nullptr;   // [rows]
  const float* d_y = nullptr;
  std::int64_t d_y_stride = 0;
  float* d_x = nullptr;  // written; may be d_y, with the same stride
  std::int64_t d_x_stride = 0;
};

// d_x, row by row.
void rms_norm_backward(const NormBackward& norm) noexcept;
void layer_norm_backward(const NormBackward& norm) noexcept;

// d_gamma = the sum of d_y * (x - mean) * rstd, d_beta = the sum of d_y, over
// all rows, for the columns [begin, end). Either may be null. Written, not
// added. Threads share the columns: a column's bits do not depend on the cut.
// d_x is not used. Call it before d_x overwrites d_y.
void norm_parameter_gradients(const NormBackward& norm, std::int64_t begin,
                              std::int64_t end, float* d_gamma,
                              float* d_beta) noexcept;

}  // namespace regard::kernels
