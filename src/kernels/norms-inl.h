// SPDX-License-Identifier: Apache-2.0
// Included once for each SIMD target, hence no #pragma once but this guard.
#if defined(REGARD_KERNELS_NORMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef REGARD_KERNELS_NORMS_INL_H_
#undef REGARD_KERNELS_NORMS_INL_H_
#else
#define REGARD_KERNELS_NORMS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/norms.h"
#include "kernels/vector_ends-inl.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kNormVecs = static_cast<int>(kNormChains / kEndLanes);

// All chains of one sum.
class NormSum {
 public:
  HWY_INLINE NormSum() {
    for (EndVec& v : sums_) v = hn::Zero(EndTag());
  }
  HWY_INLINE EndVec& operator[](int i) { return sums_[i]; }

  HWY_INLINE float total() const {
    EndVec sums[kNormVecs];
    for (int i = 0; i < kNormVecs; ++i) sums[i] = sums_[i];
    for (int half = kNormVecs / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) sums[i] = hn::Add(sums[i], sums[i + half]);
    }
    HWY_ALIGN float chain[kEndLanes];
    hn::Store(sums[0], EndTag(), chain);
    for (std::int64_t half = kEndLanes / 2; half > 0; half /= 2) {
      for (std::int64_t i = 0; i < half; ++i) chain[i] += chain[i + half];
    }
    return chain[0];
  }

 private:
  EndVec sums_[kNormVecs];
};

// Calls body(index, chain vector, elements that count) for all of a row. A
// vector that reaches past the end counts fewer elements than it has lanes.
template <typename Body>
HWY_INLINE void over_row(std::int64_t dim, const Body& body) {
  std::int64_t i = 0;
  for (; i + kNormChains <= dim; i += kNormChains) {
    for (int v = 0; v < kNormVecs; ++v) {
      body(i + v * kEndLanes, v, kEndLanes);
    }
  }
  // So many rounds, so that the chains stay in registers.
  for (int v = 0; v < kNormVecs; ++v, i += kEndLanes) {
    if (i >= dim) break;
    body(i, v, std::min(kEndLanes, dim - i));
  }
}

// Zero for the lanes that do not count, whatever they hold.
HWY_INLINE EndVec only_first(EndVec v, std::int64_t count) {
  if (count == kEndLanes) return v;
  const EndTag d;
  return hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(count)), v);
}

HWY_INLINE float mean_of(float sum, std::int64_t dim) {
  return dim == 0 ? 0.0f : sum / static_cast<float>(dim);
}

HWY_INLINE void rms_norm_row(const Norm& n, std::int64_t row) {
  const EndTag d;
  const float* const x = n.x + row * n.x_stride;
  float* const y = n.y + row * n.y_stride;
  NormSum squares;
  over_row(n.dim, [&](std::int64_t i, int v, std::int64_t count) HWY_ATTR {
    const EndVec a = load_left(x + i, count);
    squares[v] = hn::MulAdd(a, a, squares[v]);
  });
  const float rstd = 1.0f / std::sqrt(mean_of(squares.total(), n.dim) + n.eps);
  if (n.rstd != nullptr) n.rstd[row] = rstd;
  const EndVec factor = hn::Set(d, rstd);
  over_row(n.dim, [&](std::int64_t i, int, std::int64_t count) HWY_ATTR {
    EndVec a = hn::Mul(load_left(x + i, count), factor);
    if (n.gamma != nullptr) a = hn::Mul(a, load_left(n.gamma + i, count));
    store_left(a, y + i, count);
  });
}

HWY_INLINE void layer_norm_row(const Norm& n, std::int64_t row) {
  const EndTag d;
  const float* const x = n.x + row * n.x_stride;
  float* const y = n.y + row * n.y_stride;
  // 1. The mean.
  NormSum sum;
  over_row(n.dim, [&](std::int64_t i, int v, std::int64_t count) HWY_ATTR {
    sum[v] = hn::Add(sum[v], load_left(x + i, count));
  });
  const float mean = mean_of(sum.total(), n.dim);
  // 2. The variance, from the differences: mean(x^2) - mean^2 would cancel.
  const EndVec centre = hn::Set(d, mean);
  NormSum squares;
  over_row(n.dim, [&](std::int64_t i, int v, std::int64_t count) HWY_ATTR {
    const EndVec a =
        only_first(hn::Sub(load_left(x + i, count), centre), count);
    squares[v] = hn::MulAdd(a, a, squares[v]);
  });
  const float rstd = 1.0f / std::sqrt(mean_of(squares.total(), n.dim) + n.eps);
  if (n.mean != nullptr) n.mean[row] = mean;
  if (n.rstd != nullptr) n.rstd[row] = rstd;
  // 3. The row.
  const EndVec factor = hn::Set(d, rstd);
  over_row(n.dim, [&](std::int64_t i, int, std::int64_t count) HWY_ATTR {
    EndVec a = hn::Mul(hn::Sub(load_left(x + i, count), centre), factor);
    if (n.gamma != nullptr) a = hn::Mul(a, load_left(n.gamma + i, count));
    if (n.beta != nullptr) a = hn::Add(a, load_left(n.beta + i, count));
    store_left(a, y + i, count);
  });
}

// With h = (x - mean) * rstd, y = h * gamma + beta and g = d_y * gamma:
//   layer norm  d_x = rstd * (g - mean(g) - h * mean(g * h))
//   RMS norm    d_x = rstd * (g - h * mean(g * h)), mean = 0
template <bool kCentred>
HWY_INLINE void norm_backward_row(const NormBackward& n, std::int64_t row) {
  const EndTag d;
  const float* const x = n.x + row * n.x_stride;
  const float* const d_y = n.d_y + row * n.d_y_stride;
  float* const d_x = n.d_x + row * n.d_x_stride;
  const EndVec rstd = hn::Set(d, n.rstd[row]);
  const EndVec centre = hn::Set(d, kCentred ? n.mean[row] : 0.0f);
  const auto normed = [&](std::int64_t i, std::int64_t count) HWY_ATTR {
    EndVec a = load_left(x + i, count);
    if constexpr (kCentred) a = hn::Sub(a, centre);
    return hn::Mul(a, rstd);
  };
  const auto gradient = [&](std::int64_t i, std::int64_t count) HWY_ATTR {
    const EndVec g = load_left(d_y + i, count);
    if (n.gamma == nullptr) return g;
    return hn::Mul(g, load_left(n.gamma + i, count));
  };
  NormSum sum, product;
  over_row(n.dim, [&](std::int64_t i, int v, std::int64_t count) HWY_ATTR {
    const EndVec g = gradient(i, count);
    if constexpr (kCentred) sum[v] = hn::Add(sum[v], g);
    product[v] = hn::MulAdd(g, only_first(normed(i, count), count), product[v]);
  });
  const EndVec mean_g = hn::Set(d, mean_of(sum.total(), n.dim));
  const EndVec mean_gh = hn::Set(d, mean_of(product.total(), n.dim));
  over_row(n.dim, [&](std::int64_t i, int, std::int64_t count) HWY_ATTR {
    EndVec g = gradient(i, count);
    if constexpr (kCentred) g = hn::Sub(g, mean_g);
    g = hn::NegMulAdd(normed(i, count), mean_gh, g);
    store_left(hn::Mul(g, rstd), d_x + i, count);
  });
}

// kVecs vectors of columns, over all rows: several, so that no sum waits for
// the one before it and lines are read whole. `count` may be less than a vector
// where there is one.
template <int kVecs>
HWY_INLINE void norm_parameter_columns(const NormBackward& n, std::int64_t col,
                                       std::int64_t count, float* d_gamma,
                                       float* d_beta) {
  const EndTag d;
  EndVec gamma[kVecs], beta[kVecs];
  for (int v = 0; v < kVecs; ++v) gamma[v] = beta[v] = hn::Zero(d);
  for (std::int64_t begin = 0; begin < n.rows; begin += kNormRowBlock) {
    const std::int64_t end = std::min(n.rows, begin + kNormRowBlock);
    EndVec block_gamma[kVecs], block_beta[kVecs];
    for (int v = 0; v < kVecs; ++v) {
      block_gamma[v] = block_beta[v] = hn::Zero(d);
    }
    for (std::int64_t row = begin; row < end; ++row) {
      const float* const d_y = n.d_y + row * n.d_y_stride + col;
      const float* const x = n.x + row * n.x_stride + col;
      const EndVec mean = hn::Set(d, n.mean != nullptr ? n.mean[row] : 0.0f);
      const EndVec rstd = hn::Set(d, n.rstd[row]);
      HWY_UNROLL(4)
      for (int v = 0; v < kVecs; ++v) {
        const EndVec g = load_left(d_y + v * kEndLanes, count);
        EndVec h = load_left(x + v * kEndLanes, count);
        if (n.mean != nullptr) h = hn::Sub(h, mean);
        h = hn::Mul(h, rstd);
        block_gamma[v] = hn::MulAdd(g, h, block_gamma[v]);
        block_beta[v] = hn::Add(block_beta[v], g);
      }
    }
    for (int v = 0; v < kVecs; ++v) {
      gamma[v] = hn::Add(gamma[v], block_gamma[v]);
      beta[v] = hn::Add(beta[v], block_beta[v]);
    }
  }
  for (int v = 0; v < kVecs; ++v) {
    const std::int64_t at = col + v * kEndLanes;
    if (d_gamma != nullptr) store_left(gamma[v], d_gamma + at, count);
    if (d_beta != nullptr) store_left(beta[v], d_beta + at, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace regard::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard
