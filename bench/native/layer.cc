// SPDX-License-Identifier: Apache-2.0
// nn::MultiHeadAttention and the product of its projections, for
// bench/layer.py, which mirrors LayerCase and GemmCase.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "bench.h"
#include "ops/product.h"
#include "regard/nn/multi_head_attention.h"

namespace regard::bench {

// Self attention over [batch, len, dim].
struct LayerCase {
  std::int64_t batch, len, dim, heads;
  const float *in_weight, *in_bias, *out_weight, *out_bias;
  const float* input;
  float* out;
  float* average;  // [batch, len, len], or null for none
  // Of a training step alone.
  const float* d_out;
  float *d_input, *d_in_weight, *d_in_bias, *d_out_weight, *d_out_bias;
  std::uint64_t dropout_seed;
  float dropout_rate;
  std::int32_t training;  // 0: inference
  std::int32_t threads;
};

// c [m, n] = a [m, k] b [n, k]^T.
struct GemmCase {
  std::int64_t m, n, k;
  const float *a, *b;
  float* c;
  std::int32_t pack_once;  // 0: b is packed in every call, as mm must do it
  std::int32_t threads;
};

namespace {

Tensor copy_of(const float* values, Shape shape) {
  Tensor tensor(std::move(shape));
  std::copy(values, values + tensor.size(), tensor.values<float>().data());
  return tensor;
}

nn::MultiHeadAttention make_layer(const LayerCase& c) {
  StateDict parameters;
  parameters["in_proj_weight"] = copy_of(c.in_weight, {3 * c.dim, c.dim});
  parameters["in_proj_bias"] = copy_of(c.in_bias, {3 * c.dim});
  parameters["out_proj.weight"] = copy_of(c.out_weight, {c.dim, c.dim});
  parameters["out_proj.bias"] = copy_of(c.out_bias, {c.dim});
  nn::MultiHeadAttentionConfig config;
  config.model_dim = c.dim;
  config.heads = c.heads;
  config.dropout = c.dropout_rate;
  return {config, std::move(parameters)};
}

void give(const StateDict& gradients, const char* name, float* to) {
  const auto values = gradients.at(name).values<float>();
  std::copy(values.begin(), values.end(), to);
}

nn::MultiHeadAttentionOptions options_of(const LayerCase& c) {
  nn::MultiHeadAttentionOptions options;
  options.threads.count = c.threads;
  if (c.average != nullptr) {
    options.average_weights = {c.average, {c.batch, c.len, c.len}};
  }
  if (c.training != 0) {
    options.mode = nn::Mode::kTraining;
    options.dropout_seed = c.dropout_seed;
  }
  return options;
}

// What a user of the layer keeps from call to call.
struct Layer {
  nn::MultiHeadAttention layer;
  nn::MultiHeadAttentionContext context;
  StateDict gradients;
};

double infer(const Layer& own, const LayerCase& c, std::int64_t calls) {
  const std::array<std::int64_t, 3> shape{c.batch, c.len, c.dim};
  const TensorView<const float, 3> input(c.input, shape);
  const TensorView<float, 3> out(c.out, shape);
  const auto options = options_of(c);
  return timed(calls, [&] { own.layer.forward(input, out, options); });
}

double train(Layer& own, const LayerCase& c, std::int64_t calls) {
  const std::array<std::int64_t, 3> shape{c.batch, c.len, c.dim};
  const TensorView<const float, 3> input(c.input, shape), d_out(c.d_out, shape);
  const TensorView<float, 3> out(c.out, shape), d_input(c.d_input, shape);
  auto options = options_of(c);
  options.context = &own.context;
  StateDict& gradients = own.gradients;
  const double seconds = timed(calls, [&] {
    own.layer.forward(input, out, options);
    gradients =
        own.layer.backward(own.context, d_out,
                           {.query = d_input, .key = d_input, .value = d_input},
                           std::move(gradients));
  });
  give(gradients, "in_proj_weight", c.d_in_weight);
  give(gradients, "in_proj_bias", c.d_in_bias);
  give(gradients, "out_proj.weight", c.d_out_weight);
  give(gradients, "out_proj.bias", c.d_out_bias);
  return seconds;
}

double multiply(const GemmCase& c, std::int64_t calls) {
  const ops::ConstRows weight{c.b, {c.n, c.k}};
  const Threads threads{.count = c.threads};
  ops::MemoryPool pool;
  const ops::PackOptions pack{.pool = &pool, .threads = threads};
  auto packed = ops::PackedWeights::pack(weight, pack);
  return timed(calls, [&] {
    if (c.pack_once == 0) {
      packed = {};  // back to the pool
      packed = ops::PackedWeights::pack(weight, pack);
    }
    ops::multiply(
        {.x = {c.a, {c.m, c.k}}, .weight = &packed, .y = {c.c, {c.m, c.n}}},
        threads);
  });
}

}  // namespace
}  // namespace regard::bench

using regard::bench::GemmCase;
using regard::bench::Layer;
using regard::bench::LayerCase;

// A layer with the case's parameters, packed; null if it cannot be made.
extern "C" void* regard_bench_make_layer(const LayerCase* c) {
  return regard::bench::made([&] {
    return new Layer{regard::bench::make_layer(*c), {}, {}};
  });
}

extern "C" void regard_bench_release_layer(void* layer) {
  delete static_cast<Layer*>(layer);
}

// Seconds that `calls` calls took. A training step is forward and backward; the
// parameters' gradients are copied out after the clock has stopped.
extern "C" double regard_bench_layer(void* layer, const LayerCase* c,
                                     std::int64_t calls) {
  return regard::bench::guarded([&] {
    Layer& own = *static_cast<Layer*>(layer);
    return c->training != 0 ? regard::bench::train(own, *c, calls)
                            : regard::bench::infer(own, *c, calls);
  });
}

extern "C" double regard_bench_gemm(const GemmCase* c, std::int64_t calls) {
  return regard::bench::guarded(
      [&] { return regard::bench::multiply(*c, calls); });
}
