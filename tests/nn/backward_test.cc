// SPDX-License-Identifier: Apache-2.0
// The layer's gradients against central differences of the reference layer in
// double, which shares nothing with the library.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "regard/nn/multi_head_attention.h"
#include "support/reference_layer.h"
#include "support/refusal.h"
#include "support/same_bits.h"

namespace regard::nn {
namespace {

using test::LayerCase;
using test::normal_floats;
using test::random_layer_case;
using test::ReferenceLayer;
using test::refusal;
using test::Rng;

struct Gradient {
  std::vector<float> query, key, value, bias;
  StateDict parameters;
};

std::vector<float> weights_of_loss(const LayerCase& c) {
  Rng rng(12);
  return normal_floats(rng, c.batch * c.q_len * c.config.model_dim);
}

// The loss is the dot product of out with fixed weights.
double loss(const LayerCase& c) {
  const std::vector<double> out = ReferenceLayer<double>(c).run().out;
  const std::vector<float> weights = weights_of_loss(c);
  double sum = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    sum += out[i] * static_cast<double>(weights[i]);
  }
  return sum;
}

// Tensors handed back are written over, whatever they held.
void expect_reuse(const MultiHeadAttention& layer,
                  const MultiHeadAttentionContext& context,
                  TensorView<const float, 3> d_out, const StateDict& expected) {
  StateDict old;
  std::map<std::string, const float*> memory;
  for (const auto& [name, tensor] : expected) {
    Tensor& marked = old.emplace(name, Tensor(tensor.shape())).first->second;
    std::ranges::fill(marked.values<float>(), std::nanf(""));
    memory[name] = marked.values<float>().data();
  }
  const StateDict again = layer.backward(context, d_out, {}, std::move(old));
  ASSERT_EQ(again.size(), expected.size());
  for (const auto& [name, tensor] : again) {
    EXPECT_EQ(tensor.values<float>().data(), memory[name]) << name;
    EXPECT_TRUE(std::ranges::equal(tensor.values<float>(),
                                   expected.at(name).values<float>()))
        << name;
  }
}

Gradient run(const LayerCase& c, int threads = 1) {
  const auto& g = c.config;
  const MultiHeadAttention layer(c.config, c.parameters);
  MultiHeadAttentionContext context;
  MultiHeadAttentionOptions options;
  options.context = &context;
  options.threads.count = threads;
  test::run_layer(layer, c, options);
  Gradient d{c.query, c.key, c.value, c.bias, {}};
  MultiHeadAttentionGradients to;
  to.query = {d.query.data(), {c.batch, c.q_len, g.model_dim}};
  to.key = {d.key.data(), {c.batch, c.kv_len, g.key_dim}};
  to.value = {d.value.data(), {c.batch, c.kv_len, g.value_dim}};
  if (!c.bias.empty()) {
    to.bias = {d.bias.data(), {c.batch, g.heads, c.q_len, c.kv_len}};
  }
  const std::vector<float> d_out = weights_of_loss(c);
  const TensorView<const float, 3> d_out_view{d_out.data(),
                                              {c.batch, c.q_len, g.model_dim}};
  d.parameters = layer.backward(context, d_out_view, to);
  expect_reuse(layer, context, d_out_view, d.parameters);
  return d;
}

// Moves some of the values and compares the loss's slope with the gradient.
void check(LayerCase& c, std::span<float> values, std::span<const float> got,
           const std::string& name) {
  ASSERT_EQ(values.size(), got.size()) << name;
  const std::size_t step = std::max<std::size_t>(1, values.size() / 23);
  for (std::size_t i = 0; i < values.size(); i += step) {
    const float before = values[i];
    const float up = before + 0.0009765625f;
    const float down = before - 0.0009765625f;
    values[i] = up;
    const double high = loss(c);
    values[i] = down;
    const double low = loss(c);
    values[i] = before;
    const double slope = (high - low) / (double{up} - double{down});
    EXPECT_NEAR(got[i], slope, 2e-4 * (1 + std::abs(slope)))
        << name << "[" << i << "]";
  }
}

struct Shape {
  const char* name;
  MultiHeadAttentionConfig config;
  void (*change)(LayerCase&) = [](LayerCase&) {};

  friend void PrintTo(const Shape& shape, std::ostream* out) {
    *out << shape.name;
  }
};

class LayerBackward : public ::testing::TestWithParam<Shape> {};

TEST_P(LayerBackward, IsTheSlopeOfTheLoss) {
  LayerCase c = random_layer_case(GetParam().config, 2, 5, 7);
  GetParam().change(c);
  const Gradient d = run(c);
  check(c, c.query, d.query, "query");
  check(c, c.key, d.key, "key");
  check(c, c.value, d.value, "value");
  if (!c.bias.empty()) check(c, c.bias, d.bias, "bias");
  ASSERT_EQ(d.parameters.size(), c.parameters.size());
  for (auto& [name, tensor] : c.parameters) {
    check(c, tensor.values<float>(), d.parameters.at(name).values<float>(),
          name);
  }
}

TEST_P(LayerBackward, HasTheSameBitsForAnyThreads) {
  LayerCase c = random_layer_case(GetParam().config, 3, 53, 101);
  GetParam().change(c);
  const Gradient one = run(c, 1);
  for (const int threads : {2, 3}) {
    const Gradient more = run(c, threads);
    EXPECT_EQ(one.query, more.query);
    EXPECT_EQ(one.key, more.key);
    EXPECT_EQ(one.value, more.value);
    EXPECT_EQ(one.bias, more.bias);
    EXPECT_TRUE(test::same_bits(one.parameters, more.parameters));
  }
}

void add_bias(LayerCase& c) {
  Rng rng(13);
  c.bias = normal_floats(rng, c.batch * c.config.heads * c.q_len * c.kv_len);
}

INSTANTIATE_TEST_SUITE_P(
    All, LayerBackward,
    ::testing::Values(
        Shape{"Plain", {.model_dim = 12, .heads = 3}},
        Shape{"NoBias", {.model_dim = 12, .heads = 3, .bias = false}},
        Shape{"GroupedKeys", {.model_dim = 16, .heads = 4, .kv_heads = 2}},
        Shape{"FreeSizes",
              {.model_dim = 10,
               .heads = 3,
               .key_dim = 6,
               .value_dim = 9,
               .head_dim = 5,
               .value_head_dim = 4}},
        Shape{"Causal",
              {.model_dim = 12, .heads = 2},
              [](LayerCase& c) { c.mask = test::causal_spec(); }},
        Shape{"BiasKv", {.model_dim = 12, .heads = 3, .bias_kv = true}},
        Shape{"BiasKvGrouped",
              {.model_dim = 16, .heads = 4, .kv_heads = 2, .bias_kv = true}},
        Shape{"BiasKvCosine",
              {.model_dim = 12,
               .heads = 3,
               .bias_kv = true,
               .score = Score::kCosine}},
        Shape{"ZeroKey", {.model_dim = 12, .heads = 3, .add_zero_attn = true}},
        Shape{"Both",
              {.model_dim = 12,
               .heads = 3,
               .bias_kv = true,
               .add_zero_attn = true}},
        Shape{"Cosine", {.model_dim = 12, .heads = 3, .score = Score::kCosine}},
        Shape{"Dropout",
              {.model_dim = 12, .heads = 3, .bias_kv = true, .dropout = 0.3f},
              [](LayerCase& c) {
                c.training = true;
                c.dropout_seed = 77;
              }},
        Shape{"Softcap",
              {.model_dim = 12, .heads = 3, .bias_kv = true},
              [](LayerCase& c) { c.softcap = 1.5f; }},
        Shape{"Bias", {.model_dim = 12, .heads = 3}, add_bias}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(LayerBackward, SumsTheGradientsOfInputsThatAreOneMemory) {
  LayerCase c = random_layer_case({.model_dim = 12, .heads = 3}, 2, 6, 6);
  c.key = c.value = c.query;
  const Gradient apart = run(c);
  const MultiHeadAttention layer(c.config, c.parameters);
  MultiHeadAttentionContext context;
  const TensorView<const float, 3> input{c.query.data(), {2, 6, 12}};
  std::vector<float> out(c.query.size());
  const TensorView<float, 3> out_view{out.data(), {2, 6, 12}};
  layer.forward(input, out_view, {.context = &context});
  std::vector<float> d(c.query.size());
  const TensorView<float, 3> to{d.data(), {2, 6, 12}};
  const std::vector<float> d_out = weights_of_loss(c);
  layer.backward(context, {d_out.data(), {2, 6, 12}},
                 {.query = to, .key = to, .value = to});
  for (std::size_t i = 0; i < d.size(); ++i) {
    EXPECT_NEAR(d[i], apart.query[i] + apart.key[i] + apart.value[i], 1e-4);
  }
}

TEST(LayerBackward, SaysWhatItRefuses) {
  LayerCase c = random_layer_case({.model_dim = 12, .heads = 3}, 2, 6, 6);
  const MultiHeadAttention layer(c.config, c.parameters);
  MultiHeadAttentionContext context;
  const std::vector<float> d_out = weights_of_loss(c);
  EXPECT_EQ(refusal([&] {
              layer.backward(context, {d_out.data(), {2, 6, 12}});
            }),
            "MultiHeadAttention::backward: the context must be one that "
            "forward filled; it is empty");
  std::vector<float> out(c.query.size());
  layer.forward(TensorView<const float, 3>{c.query.data(), {2, 6, 12}},
                TensorView<float, 3>{out.data(), {2, 6, 12}},
                {.context = &context});
  EXPECT_EQ(refusal([&] {
              layer.backward(context, {d_out.data(), {1, 12, 12}});
            }),
            "MultiHeadAttention::backward: d_out must have the query's shape; "
            "d_out is [1, 12, 12], query is [2, 6, 12]");
  EXPECT_EQ(refusal([&] {
              layer.backward(context, {d_out.data(), {2, 6, 12}},
                             {.key = {out.data(), {2, 12, 6}}});
            }),
            "MultiHeadAttention::backward: the gradient of key must have its "
            "shape; the gradient is [2, 12, 6], key is [2, 6, 12]");
  const MultiHeadAttention wider({.model_dim = 12, .heads = 3, .head_dim = 8},
                                 1);
  EXPECT_EQ(refusal([&] {
              wider.backward(context, {d_out.data(), {2, 6, 12}});
            }),
            "MultiHeadAttention::backward: the context must be one that this "
            "layer filled: widths of query, key, value, their projections, and "
            "heads are [12, 12, 12, 24, 24, 24, 3]; the context has [12, 12, "
            "12, 12, 12, 12, 3]");
  const MultiHeadAttention cut_elsewhere({.model_dim = 12, .heads = 4}, 1);
  EXPECT_NE(refusal([&] {
              cut_elsewhere.backward(context, {d_out.data(), {2, 6, 12}});
            }),
            "accepted");
}

TEST(LayerSetParameters, TakesNewValuesAndRefusesOtherShapes) {
  LayerCase c = random_layer_case({.model_dim = 12, .heads = 3}, 1, 4, 4);
  MultiHeadAttention layer(c.config, 99);
  layer.set_parameters(c.parameters);
  const MultiHeadAttention fresh(c.config, c.parameters);
  std::vector<float> a(c.query.size()), b(c.query.size());
  const TensorView<const float, 3> input{c.query.data(), {1, 4, 12}};
  layer.forward(input, TensorView<float, 3>{a.data(), {1, 4, 12}});
  fresh.forward(input, TensorView<float, 3>{b.data(), {1, 4, 12}});
  EXPECT_EQ(a, b);
  c.parameters.erase("in_proj_weight");
  EXPECT_NE(refusal([&] {
              layer.set_parameters(c.parameters);
            }).find("in_proj_weight"),
            std::string::npos);
}

}  // namespace
}  // namespace regard::nn
