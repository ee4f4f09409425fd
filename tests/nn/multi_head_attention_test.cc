// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/multi_head_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/every_path.h"
#include "support/reference_layer.h"
#include "support/refusal.h"

namespace regard::nn {
namespace {

using test::LayerCase;
using test::LayerResult;
using test::normal_floats;
using test::on_every_bf16_path;
using test::random_layer_case;
using test::Rng;
using ::testing::Each;

std::vector<float> forward(const LayerCase& c,
                           const MultiHeadAttentionOptions& options) {
  return test::run_layer(MultiHeadAttention(c.config, c.parameters), c,
                         options);
}

LayerResult<float> run(const LayerCase& c, Threads threads = {}) {
  LayerResult<float> r;
  r.weights.resize(static_cast<std::size_t>(c.batch * c.config.heads * c.q_len *
                                            c.all_keys()));
  r.average.resize(static_cast<std::size_t>(c.batch * c.q_len * c.all_keys()));
  MultiHeadAttentionOptions options;
  options.weights = {r.weights.data(),
                     {c.batch, c.config.heads, c.q_len, c.all_keys()}};
  options.average_weights = {r.average.data(),
                             {c.batch, c.q_len, c.all_keys()}};
  options.threads = threads;
  r.out = forward(c, options);
  return r;
}

// The averaged weights alone, which take another way.
std::vector<float> run_average(const LayerCase& c) {
  std::vector<float> average(
      static_cast<std::size_t>(c.batch * c.q_len * c.all_keys()));
  MultiHeadAttentionOptions options;
  options.average_weights = {average.data(), {c.batch, c.q_len, c.all_keys()}};
  forward(c, options);
  return average;
}

double max_diff(const std::vector<float>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double diff = std::abs(a[i] - b[i]);
    worst = diff <= worst ? worst : diff;  // NaN counts as worse
  }
  return worst;
}

// At most twice as wrong as the plain float loops are.
void expect_exact(const LayerCase& c) {
  const LayerResult<float> r = run(c);
  const LayerResult<double> exact = test::reference_layer<double>(c);
  const LayerResult<float> plain = test::reference_layer<float>(c);
  EXPECT_LE(max_diff(r.out, exact.out),
            2 * max_diff(plain.out, exact.out) + 1e-6);
  EXPECT_LE(max_diff(r.weights, exact.weights),
            2 * max_diff(plain.weights, exact.weights) + 1e-6);
  EXPECT_LE(max_diff(r.average, exact.average),
            2 * max_diff(plain.average, exact.average) + 1e-6);
  EXPECT_LE(max_diff(run_average(c), exact.average),
            2 * max_diff(plain.average, exact.average) + 1e-6);
}

struct Lengths {
  std::int64_t batch, q_len, kv_len;
};

struct Named {
  const char* name;
  MultiHeadAttentionConfig config;
  Lengths shape;
  std::function<void(LayerCase&)> change = [](LayerCase&) {};
};

class MultiHeadAttentionTest : public ::testing::TestWithParam<Named> {};

TEST_P(MultiHeadAttentionTest, IsAsExactAsTheDefinition) {
  const Named& named = GetParam();
  LayerCase c = random_layer_case(named.config, named.shape.batch,
                                  named.shape.q_len, named.shape.kv_len);
  named.change(c);
  expect_exact(c);
}

TEST_P(MultiHeadAttentionTest, HasTheSameBitsForAnyNumberOfThreads) {
  const Named& named = GetParam();
  LayerCase c = random_layer_case(named.config, named.shape.batch,
                                  named.shape.q_len, named.shape.kv_len);
  named.change(c);
  const LayerResult<float> one = run(c, Threads{1});
  for (const int threads : {2, 3, 5}) {
    const LayerResult<float> r = run(c, Threads{threads});
    EXPECT_EQ(r.out, one.out) << threads << " threads";
    EXPECT_EQ(r.weights, one.weights) << threads << " threads";
  }
}

void dense_mask(LayerCase& c) {
  Rng rng(9);
  const test::DenseBools drop = test::random_bools(
      rng, {c.batch, c.config.heads, c.q_len, c.kv_len}, 0.4);
  for (std::int64_t j = 0; j < c.kv_len; ++j) drop(0, 0, 0, j) = true;
  c.mask = test::drop_spec(drop);
}

void padding(LayerCase& c) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(c.batch),
                                    c.kv_len / 2);
  lengths[0] = 0;  // its rows see nothing
  c.mask = test::lengths_spec(lengths);
}

void causal(LayerCase& c) { c.mask = test::causal_spec(); }

void everything(LayerCase& c) {
  Rng rng(11);
  causal(c);
  c.bias = normal_floats(rng, c.batch * c.config.heads * c.q_len * c.kv_len);
  c.alibi_slopes = normal_floats(rng, c.config.heads);
  c.softcap = 3.0f;
  c.training = true;
  c.dropout_seed = 77;
}

INSTANTIATE_TEST_SUITE_P(
    Cases, MultiHeadAttentionTest,
    ::testing::Values(
        Named{"plain", {.model_dim = 64, .heads = 4}, {2, 7, 7}},
        Named{"one_head", {.model_dim = 59, .heads = 1}, {1, 3, 17}},
        Named{"one_of_everything", {.model_dim = 1, .heads = 1}, {1, 1, 1}},
        Named{"no_bias",
              {.model_dim = 48, .heads = 3, .bias = false},
              {3, 11, 5}},
        Named{"grouped",
              {.model_dim = 96, .heads = 6, .kv_heads = 2},
              {2, 13, 13},
              causal},
        Named{
            "free_head_sizes",
            {.model_dim = 50, .heads = 2, .head_dim = 24, .value_head_dim = 7},
            {2, 9, 10}},
        Named{"other_inputs",
              {.model_dim = 32, .heads = 4, .key_dim = 20, .value_dim = 45},
              {2, 6, 12},
              padding},
        Named{"dense_mask",
              {.model_dim = 40, .heads = 5},
              {2, 8, 19},
              dense_mask},
        Named{"row_that_sees_nothing",
              {.model_dim = 24, .heads = 2},
              {1, 9, 4},
              causal},
        Named{"scale", {.model_dim = 24, .heads = 2, .scale = 0.7f}, {2, 5, 5}},
        Named{"cosine",
              {.model_dim = 60, .heads = 5, .score = Score::kCosine},
              {2, 10, 10}},
        Named{"bias_kv",
              {.model_dim = 32, .heads = 4, .bias_kv = true},
              {2, 5, 6},
              padding},
        Named{"bias_kv_grouped_cosine",
              {.model_dim = 32,
               .heads = 4,
               .kv_heads = 2,
               .bias_kv = true,
               .score = Score::kCosine},
              {2, 5, 6},
              dense_mask},
        Named{"zero_attn",
              {.model_dim = 32, .heads = 4, .add_zero_attn = true},
              {2, 5, 6},
              dense_mask},
        Named{"both_appended",
              {.model_dim = 32,
               .heads = 4,
               .bias_kv = true,
               .add_zero_attn = true},
              {2, 7, 7},
              causal},
        Named{"dropout",
              {.model_dim = 32, .heads = 2, .dropout = 0.4f},
              {2, 9, 9},
              [](LayerCase& c) { c.training = true; }},
        Named{"everything",
              {.model_dim = 36,
               .heads = 4,
               .kv_heads = 2,
               .key_dim = 17,
               .value_dim = 23,
               .head_dim = 8,
               .value_head_dim = 5,
               .bias_kv = true,
               .add_zero_attn = true,
               .dropout = 0.3f,
               .score = Score::kCosine,
               .scale = 1.5f},
              {3, 7, 11},
              everything},
        Named{
            "many_rows", {.model_dim = 72, .heads = 3}, {4, 150, 61}, padding},
        Named{"no_keys", {.model_dim = 16, .heads = 2}, {2, 3, 0}},
        Named{"no_keys_but_appended",
              {.model_dim = 16,
               .heads = 2,
               .bias_kv = true,
               .add_zero_attn = true},
              {2, 3, 0}},
        Named{"no_queries", {.model_dim = 16, .heads = 2}, {2, 0, 3}},
        Named{"no_batch", {.model_dim = 16, .heads = 2}, {0, 3, 3}}),
    [](const auto& named) { return std::string(named.param.name); });

TEST(MultiHeadAttention, IsExactForRandomConfigurations) {
  Rng rng(2027);
  for (int n = 0; n < 150; ++n) {
    MultiHeadAttentionConfig g;
    g.kv_heads = test::pick(rng, 1, 3);
    g.heads = g.kv_heads * test::pick(rng, 1, 3);
    g.model_dim = test::pick(rng, 1, 70);
    g.key_dim = test::chance(rng, 0.5) ? 0 : test::pick(rng, 1, 40);
    g.value_dim = test::chance(rng, 0.5) ? 0 : test::pick(rng, 1, 40);
    g.head_dim = test::pick(rng, 1, 33);
    g.value_head_dim = test::chance(rng, 0.5) ? 0 : test::pick(rng, 1, 33);
    g.bias = test::chance(rng, 0.7);
    g.bias_kv = test::chance(rng, 0.4);
    g.add_zero_attn = test::chance(rng, 0.4);
    g.dropout = test::chance(rng, 0.4) ? 0.25f : 0.0f;
    g.score = test::chance(rng, 0.3) ? Score::kCosine : Score::kDot;
    LayerCase c =
        random_layer_case(g, test::pick(rng, 1, 3), test::pick(rng, 1, 20),
                          test::pick(rng, 1, 20));
    c.mask = test::random_mask(rng, c.sizes());
    if (test::chance(rng, 0.3)) {
      c.bias = normal_floats(rng, c.batch * g.heads * c.q_len * c.kv_len);
    }
    if (test::chance(rng, 0.3)) c.alibi_slopes = normal_floats(rng, g.heads);
    if (test::chance(rng, 0.3)) c.softcap = 2.5f;
    c.training = test::chance(rng, 0.5);
    c.dropout_seed = rng();
    SCOPED_TRACE("case " + std::to_string(n) + ", mask " + c.mask.describe());
    expect_exact(c);
    if (HasFailure()) break;
  }
}

TEST(MultiHeadAttention, HasTheSameBitsOnEveryTargetWithFusedMultiplyAdd) {
  LayerCase c = random_layer_case(
      {.model_dim = 80, .heads = 5, .bias_kv = true}, 2, 21, 33);
  causal(c);
  const LayerResult<float> best = run(c);
  test::on_every_simd_target([&](const std::string& target) {
    if (!test::fuses_products(target)) return;
    EXPECT_EQ(run(c).out, best.out);
  });
}

// 1 / sqrt(24) in float is not what it is in double, rounded.
TEST(MultiHeadAttention, TheAppendedKeyHasTheScaleOfTheOthers) {
  LayerCase c = random_layer_case(
      {.model_dim = 96, .heads = 4, .bias_kv = true}, 2, 21, 3);
  const LayerResult<float> usual = run(c);
  c.config.scale = static_cast<float>(1.0 / std::sqrt(24.0));
  const LayerResult<float> given = run(c);
  EXPECT_EQ(usual.out, given.out);
  EXPECT_EQ(usual.weights, given.weights);
}

TEST(MultiHeadAttention, ARowDependsOnNoOtherBatchEntry) {
  const LayerCase all =
      random_layer_case({.model_dim = 40, .heads = 4}, 5, 7, 9);
  const LayerResult<float> together = run(all);
  for (std::int64_t b = 0; b < all.batch; ++b) {
    LayerCase alone = all;
    alone.batch = 1;
    alone.query.assign(all.query.begin() + b * 7 * 40,
                       all.query.begin() + (b + 1) * 7 * 40);
    alone.key.assign(all.key.begin() + b * 9 * 40,
                     all.key.begin() + (b + 1) * 9 * 40);
    alone.value.assign(all.value.begin() + b * 9 * 40,
                       all.value.begin() + (b + 1) * 9 * 40);
    const std::vector<float> part(together.out.begin() + b * 7 * 40,
                                  together.out.begin() + (b + 1) * 7 * 40);
    EXPECT_EQ(run(alone).out, part);
  }
}

TEST(MultiHeadAttention, UnbatchedIsABatchOfOne) {
  const LayerCase c = random_layer_case({.model_dim = 24, .heads = 3}, 1, 5, 8);
  const MultiHeadAttention layer(c.config, c.parameters);
  std::vector<float> out(5 * 24);
  layer.forward(TensorView<const float, 2>{c.query.data(), {5, 24}},
                TensorView<const float, 2>{c.key.data(), {8, 24}},
                TensorView<const float, 2>{c.value.data(), {8, 24}},
                TensorView<float, 2>{out.data(), {5, 24}});
  EXPECT_EQ(out, run(c).out);
}

TEST(MultiHeadAttention, SelfAndCrossAttentionAreShortForms) {
  LayerCase c = random_layer_case({.model_dim = 24, .heads = 3}, 2, 6, 6);
  c.value = c.key;
  const MultiHeadAttention layer(c.config, c.parameters);
  const TensorView<const float, 3> query(c.query.data(), {2, 6, 24});
  const TensorView<const float, 3> memory(c.key.data(), {2, 6, 24});
  std::vector<float> out(2 * 6 * 24);
  const TensorView<float, 3> result(out.data(), {2, 6, 24});
  layer.forward(query, memory, result, {.threads = {1}});
  EXPECT_EQ(out, run(c).out);
  c.key = c.value = c.query;
  layer.forward(query, result, {.threads = {1}});
  EXPECT_EQ(out, run(c).out);

  // The same without batch.
  c.batch = 1;
  out.resize(6 * 24);
  const TensorView<float, 2> flat(out.data(), {6, 24});
  layer.forward(TensorView<const float, 2>(c.query.data(), {6, 24}), flat);
  EXPECT_EQ(out, run({c.config,
                      c.parameters,
                      1,
                      6,
                      6,
                      {c.query.begin(), c.query.begin() + 6 * 24},
                      {c.query.begin(), c.query.begin() + 6 * 24},
                      {c.query.begin(), c.query.begin() + 6 * 24},
                      {},
                      {},
                      {}})
                     .out);
  const std::vector<float> self =
      std::exchange(out, std::vector<float>(6 * 24));
  layer.forward(TensorView<const float, 2>(c.query.data(), {6, 24}),
                TensorView<const float, 2>(c.query.data(), {6, 24}),
                TensorView<float, 2>(out.data(), {6, 24}));
  EXPECT_EQ(out, self);
}

TEST(MultiHeadAttention, TakesInputsAndOutputWithAnyStrides) {
  // Sequence first, as PyTorch's default has it: [len, batch, width].
  const LayerCase c = random_layer_case({.model_dim = 24, .heads = 3}, 3, 4, 4);
  const MultiHeadAttention layer(c.config, c.parameters);
  std::vector<float> input(3 * 4 * 24), out(3 * 4 * 24);
  for (std::size_t b = 0; b < 3; ++b) {
    for (std::size_t i = 0; i < 4; ++i) {
      std::copy_n(c.query.begin() + static_cast<long>((b * 4 + i) * 24), 24,
                  input.begin() + static_cast<long>((i * 3 + b) * 24));
    }
  }
  layer.forward(
      TensorView<const float, 3>(input.data(), {3, 4, 24}, {24, 72, 1}),
      TensorView<float, 3>(out.data(), {3, 4, 24}, {24, 72, 1}));
  LayerCase self = c;
  self.key = self.value = c.query;
  const std::vector<float> expected = run(self).out;
  for (std::size_t b = 0; b < 3; ++b) {
    for (std::size_t i = 0; i < 4; ++i) {
      for (std::size_t d = 0; d < 24; ++d) {
        ASSERT_EQ(out[(i * 3 + b) * 24 + d], expected[(b * 4 + i) * 24 + d]);
      }
    }
  }
}

TEST(MultiHeadAttention, OutMayBeTheInput) {
  LayerCase c = random_layer_case({.model_dim = 24, .heads = 3}, 2, 6, 6);
  c.key = c.value = c.query;
  const MultiHeadAttention layer(c.config, c.parameters);
  std::vector<float> x = c.query;
  const TensorView<float, 3> view(x.data(), {2, 6, 24});
  layer.forward(view, view);
  EXPECT_EQ(x, run(c).out);
}

TEST(MultiHeadAttention, ARowThatSeesNothingGivesTheOutputBias) {
  LayerCase c = random_layer_case({.model_dim = 12, .heads = 2}, 1, 2, 3);
  c.mask = test::lengths_spec({0});
  const LayerResult<float> r = run(c);
  const auto bias = c.parameters.at("out_proj.bias").values<float>();
  for (std::size_t i = 0; i < r.out.size(); ++i) {
    EXPECT_EQ(r.out[i], bias[i % 12]);
  }
  EXPECT_THAT(r.weights, Each(0.0f));
}

TEST(MultiHeadAttention, DropoutActsInTrainingOnlyAndFollowsItsSeed) {
  LayerCase c = random_layer_case(
      {.model_dim = 32, .heads = 2, .dropout = 0.5f}, 2, 9, 9);
  const std::vector<float> without = run(c).out;
  c.training = true;
  const LayerResult<float> first = run(c);
  EXPECT_NE(first.out, without);
  EXPECT_EQ(run(c).out, first.out);
  c.dropout_seed = 1;
  const LayerResult<float> second = run(c);
  EXPECT_NE(second.out, first.out);
  EXPECT_EQ(second.weights, first.weights);  // they are from before dropout
}

TEST(MultiHeadAttention, NaNInAHiddenKeyReachesNothing) {
  LayerCase c = random_layer_case(
      {.model_dim = 16, .heads = 2, .bias_kv = true}, 1, 3, 4);
  c.mask = test::lengths_spec({3});
  const std::vector<float> clean = run(c).out;
  std::fill_n(c.key.begin() + 3 * 16, 16, std::nanf(""));
  std::fill_n(c.value.begin() + 3 * 16, 16, std::nanf(""));
  EXPECT_EQ(run(c).out, clean);
  c.value[0] = std::nanf("");
  for (const float x : run(c).out) EXPECT_TRUE(std::isnan(x));
}

// ---- compute in bf16 ----

std::vector<float> run_bf16(const LayerCase& c, Threads threads = {}) {
  MultiHeadAttentionOptions options;
  options.compute = Compute::kBFloat16;
  options.threads = threads;
  return forward(c, options);
}

void round_to_bf16(std::span<float> values) {
  for (float& value : values) value = static_cast<float>(BFloat16(value));
}

// Every number that is multiplied is off by at most 2^-9 of itself, on a way of
// four products: the output may be off by a few times that.
void expect_near_in_bf16(LayerCase c) {
  for (auto& [name, tensor] : c.parameters) {
    round_to_bf16(tensor.values<float>());
  }
  round_to_bf16(c.query);
  round_to_bf16(c.key);
  round_to_bf16(c.value);
  const LayerResult<double> exact = test::reference_layer<double>(c);
  double largest = 0;
  for (const double value : exact.out) {
    largest = std::max(largest, std::abs(value));
  }
  on_every_bf16_path([&] {
    const double worst = max_diff(run_bf16(c), exact.out);
    EXPECT_LE(worst, 0x1p-6 * largest);
    EXPECT_GT(worst, 0x1p-16 * largest);  // it was in bf16
  });
}

TEST(MultiHeadAttention, ComputesInBf16OnRequest) {
  expect_near_in_bf16(
      random_layer_case({.model_dim = 64, .heads = 4}, 2, 7, 50));
  expect_near_in_bf16(random_layer_case({.model_dim = 60,
                                         .heads = 6,
                                         .kv_heads = 2,
                                         .key_dim = 30,
                                         .value_dim = 45,
                                         .bias_kv = true,
                                         .add_zero_attn = true},
                                        1, 33, 40));
  LayerCase c = random_layer_case({.model_dim = 48, .heads = 3}, 2, 20, 20);
  c.mask = test::causal_spec();
  c.softcap = 3;
  expect_near_in_bf16(c);
}

TEST(MultiHeadAttention, HasTheSameBitsInBf16ForAnyThreadsAndBatch) {
  const LayerCase c =
      random_layer_case({.model_dim = 96, .heads = 4}, 3, 70, 90);
  on_every_bf16_path([&] {
    const std::vector<float> whole = run_bf16(c, {.count = 1});
    EXPECT_EQ(run_bf16(c, {.count = 3}), whole);
    LayerCase one = c;
    one.batch = 1;
    one.query.resize(one.query.size() / 3);
    one.key.resize(one.key.size() / 3);
    one.value.resize(one.value.size() / 3);
    const std::vector<float> alone = run_bf16(one);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), whole.begin()));
  });
}

TEST(MultiHeadAttention, PacksNewParametersForBf16) {
  LayerCase c = random_layer_case({.model_dim = 32, .heads = 2}, 1, 5, 5);
  MultiHeadAttention layer(c.config, c.parameters);
  const TensorView<const float, 3> x(c.query.data(), {1, 5, 32});
  const auto call = [&] {
    std::vector<float> out(5 * 32);
    layer.forward(x, TensorView<float, 3>(out.data(), {1, 5, 32}),
                  {.compute = Compute::kBFloat16});
    return out;
  };
  const std::vector<float> before = call();
  StateDict doubled = c.parameters;
  for (float& value : doubled.at("out_proj.weight").values<float>()) {
    value *= 2;
  }
  for (float& value : doubled.at("out_proj.bias").values<float>()) value *= 2;
  layer.set_parameters(doubled);
  const std::vector<float> after = call();
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i], 2 * before[i]);
  }
}

TEST(MultiHeadAttention, RefusesAContextInBf16) {
  const LayerCase c = random_layer_case({.model_dim = 8, .heads = 2}, 1, 2, 2);
  MultiHeadAttentionContext context;
  MultiHeadAttentionOptions options;
  options.compute = Compute::kBFloat16;
  options.context = &context;
  EXPECT_EQ(test::refusal([&] { forward(c, options); }),
            "MultiHeadAttention::forward: compute in bf16 is for inference; a "
            "context for backward came");
}

}  // namespace
}  // namespace regard::nn
