// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/linear.h"

#include <algorithm>
#include <array>

#include "ops/product.h"
#include "regard/core/error.h"

namespace regard::nn {
namespace {

constexpr const char* kForward = "linear_forward";
constexpr const char* kBackward = "linear_backward";

template <typename T, int kRank>
void check_rows(const TensorView<T, kRank>& view, const char* where,
                const char* name) {
  const std::int64_t last = view.extent(kRank - 1);
  require(last <= 1 || view.stride(kRank - 1) == 1, where, name,
          " must have contiguous rows; its strides are ",
          to_string(view.strides()));
}

template <typename T, typename Shape>
void check_shape(const T& view, const Shape& shape, const char* where,
                 const char* name, const char* words) {
  require(view.shape() == shape, where, name, " must be ", words, ", ",
          to_string(shape), "; it is ", to_string(view.shape()));
  check_rows(view, where, name);
}

}  // namespace

void linear_forward(TensorView<const float, 2> x,
                    TensorView<const float, 2> weight,
                    TensorView<const float, 1> bias, TensorView<float, 2> y,
                    Threads threads) {
  const std::int64_t rows = x.extent(0), in = x.extent(1);
  const std::int64_t out = weight.extent(0);
  check_rows(x, kForward, "x");
  check_shape(weight, std::array{out, in}, kForward, "weight", "[out, in]");
  check_shape(y, std::array{rows, out}, kForward, "y", "[rows, out]");
  if (!bias.is_null()) {
    check_shape(bias, std::array{out}, kForward, "bias", "[out]");
  }
  const auto packed = ops::PackedWeights::pack_for(
      rows, weight, {.pool = &ops::thread_memory_pool(), .threads = threads});
  ops::multiply({.x = x, .weight = &packed, .bias = bias.data(), .y = y},
                threads);
}

void linear_backward(TensorView<const float, 2> d_y,
                     TensorView<const float, 2> x,
                     TensorView<const float, 2> weight,
                     const LinearGradients& gradients, Threads threads) {
  const std::int64_t rows = x.extent(0), in = x.extent(1);
  const std::int64_t out = weight.extent(0);
  check_rows(x, kBackward, "x");
  check_shape(weight, std::array{out, in}, kBackward, "weight", "[out, in]");
  check_shape(d_y, std::array{rows, out}, kBackward, "d_y", "[rows, out]");
  const auto& [d_x, d_weight, d_bias] = gradients;
  if (!d_x.is_null()) {
    check_shape(d_x, std::array{rows, in}, kBackward, "gradients.x",
                "shaped like x");
  }
  if (!d_weight.is_null()) {
    check_shape(d_weight, std::array{out, in}, kBackward, "gradients.weight",
                "shaped like weight");
  }
  if (!d_bias.is_null()) {
    check_shape(d_bias, std::array{out}, kBackward, "gradients.bias", "[out]");
  }
  ops::MemoryPool& pool = ops::thread_memory_pool();
  if (!d_x.is_null()) {
    const auto packed = ops::PackedWeights::transposed_for(
        rows, weight, {.pool = &pool, .threads = threads});
    ops::multiply({.x = d_y, .weight = &packed, .y = d_x}, threads);
  }
  if (d_weight.is_null() && d_bias.is_null()) return;
  if (rows == 0) {
    for (std::int64_t r = 0; r < d_weight.extent(0); ++r) {
      std::fill_n(d_weight.at(r), in, 0.0f);
    }
    std::fill_n(d_bias.data(), d_bias.extent(0), 0.0f);
    return;
  }
  ops::add_weight_gradient({.d_y = d_y,
                            .x = x,
                            .d_weight = d_weight,
                            .d_bias = d_bias.data(),
                            .add = false},
                           pool, threads);
}

}  // namespace regard::nn
