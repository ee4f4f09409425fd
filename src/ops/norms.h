// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kernels/norms.h"
#include "ops/rows.h"
#include "regard/ops/norm.h"

namespace regard::ops {

inline void normalize(Norm kind, const kernels::Norm& job) {
  kind == Norm::kRmsNorm ? kernels::rms_norm(job) : kernels::layer_norm(job);
}
inline void normalize_backward(Norm kind, const kernels::NormBackward& job) {
  kind == Norm::kRmsNorm ? kernels::rms_norm_backward(job)
                         : kernels::layer_norm_backward(job);
}

// A norm with its weights, for inference.
struct NormWeights {
  Norm kind = Norm::kLayerNorm;
  float epsilon = 1e-5f;
  std::vector<float> weight{};  // [width]; empty: no norm at all
  std::vector<float> bias{};    // [width]; empty: none

  bool is_null() const { return weight.empty(); }
  // y = norm(x), row by row; y may be x.
  void operator()(ConstRows x, Rows y, Threads threads) const {
    if (x.extent(0) < kRowBlock) threads.count = 1;
    over_row_blocks(threads, x.extent(0), kRowBlock,
                    [&](std::int64_t begin, std::int64_t end) {
                      normalize(kind,
                                {.rows = end - begin,
                                 .dim = x.extent(1),
                                 .x = x.at(begin),
                                 .x_stride = x.stride(0),
                                 .gamma = weight.data(),
                                 .beta = bias.empty() ? nullptr : bias.data(),
                                 .eps = epsilon,
                                 .y = y.at(begin),
                                 .y_stride = y.stride(0)});
                    });
  }
};

}  // namespace regard::ops
