// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "regard/nn/multi_head_attention.h"
#include "support/refusal.h"

namespace regard::nn {
namespace {

using test::refusal;
using ::testing::ElementsAre;

std::string refusal_of(const MultiHeadAttentionConfig& config) {
  return refusal([&] { MultiHeadAttention(config, 1); });
}

std::vector<std::string> names(const MultiHeadAttention& layer) {
  std::vector<std::string> result;
  for (const auto& [name, tensor] : layer.parameters()) {
    result.push_back(name + " " + to_string(tensor.shape()));
  }
  return result;
}

struct Moments {
  double mean = 0, deviation = 0, min = 0, max = 0;
};

Moments moments(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  const double n = static_cast<double>(values.size());
  Moments m;
  for (const float x : values) m.mean += x / n;
  for (const float x : values) m.deviation += (x - m.mean) * (x - m.mean) / n;
  m.deviation = std::sqrt(m.deviation);
  m.min = *std::min_element(values.begin(), values.end());
  m.max = *std::max_element(values.begin(), values.end());
  return m;
}

void expect_uniform(const Tensor& tensor, double bound) {
  const Moments m = moments(tensor);
  EXPECT_NEAR(m.mean, 0, 0.02 * bound);
  EXPECT_NEAR(m.deviation, bound / std::sqrt(3.0), 0.02 * bound);
  EXPECT_NEAR(m.min, -bound, 0.01 * bound);
  EXPECT_NEAR(m.max, bound, 0.01 * bound);
  EXPECT_LE(m.max, bound);
  EXPECT_GE(m.min, -bound);
}

TEST(Parameters, HaveTheNamesAndShapesOfPyTorch) {
  EXPECT_THAT(names(MultiHeadAttention({.model_dim = 8, .heads = 2}, 1)),
              ElementsAre("in_proj_bias [24]", "in_proj_weight [24, 8]",
                          "out_proj.bias [8]", "out_proj.weight [8, 8]"));
  EXPECT_THAT(names(MultiHeadAttention({.model_dim = 8,
                                        .heads = 2,
                                        .key_dim = 5,
                                        .value_dim = 6,
                                        .bias_kv = true},
                                       1)),
              ElementsAre("bias_k [1, 1, 8]", "bias_v [1, 1, 8]",
                          "in_proj_bias [24]", "k_proj_weight [8, 5]",
                          "out_proj.bias [8]", "out_proj.weight [8, 8]",
                          "q_proj_weight [8, 8]", "v_proj_weight [8, 6]"));
  EXPECT_THAT(
      names(MultiHeadAttention(
          {.model_dim = 8, .heads = 2, .value_dim = 6, .bias = false}, 1)),
      ElementsAre("k_proj_weight [8, 8]", "out_proj.weight [8, 8]",
                  "q_proj_weight [8, 8]", "v_proj_weight [8, 6]"));
}

TEST(Parameters, HaveTheirOwnWidthsWhereHeadsDo) {
  EXPECT_THAT(names(MultiHeadAttention({.model_dim = 8,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .head_dim = 5,
                                        .value_head_dim = 3,
                                        .score = Score::kCosine},
                                       1)),
              ElementsAre("cosine_scale [4]", "in_proj_bias [36]",
                          "in_proj_weight [36, 8]", "out_proj.bias [8]",
                          "out_proj.weight [8, 12]"));
}

TEST(Parameters, AreDrawnByTheRulesOfPyTorch) {
  const MultiHeadAttention fused(
      {.model_dim = 96, .heads = 4, .bias_kv = true, .score = Score::kCosine},
      42);
  const StateDict& p = fused.parameters();
  expect_uniform(p.at("in_proj_weight"), std::sqrt(6.0 / (96 + 3 * 96)));
  expect_uniform(p.at("out_proj.weight"), 1 / std::sqrt(96.0));
  for (const char* zero : {"in_proj_bias", "out_proj.bias"}) {
    EXPECT_THAT(p.at(zero).values<float>(), ::testing::Each(0.0f));
  }
  EXPECT_THAT(p.at("cosine_scale").values<float>(), ::testing::Each(10.0f));

  const MultiHeadAttention split(
      {.model_dim = 96, .heads = 4, .key_dim = 64, .value_dim = 200}, 42);
  const StateDict& s = split.parameters();
  expect_uniform(s.at("q_proj_weight"), std::sqrt(6.0 / (96 + 96)));
  expect_uniform(s.at("k_proj_weight"), std::sqrt(6.0 / (64 + 96)));
  expect_uniform(s.at("v_proj_weight"), std::sqrt(6.0 / (200 + 96)));

  const MultiHeadAttention wide(
      {.model_dim = 1, .heads = 1, .head_dim = 10000, .bias_kv = true}, 42);
  for (const char* normal : {"bias_k", "bias_v"}) {
    const Moments m = moments(wide.parameters().at(normal));
    EXPECT_NEAR(m.mean, 0, 0.0005);
    EXPECT_NEAR(m.deviation, 0.01, 0.0005);
    EXPECT_GT(m.max, 0.03);  // a uniform one would end at 0.017
  }
}

TEST(Parameters, FollowTheSeed) {
  const MultiHeadAttentionConfig config{.model_dim = 16, .heads = 2};
  const auto weights = [&](std::uint64_t seed) {
    const MultiHeadAttention layer(config, seed);
    const auto values = layer.parameters().at("in_proj_weight").values<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  EXPECT_EQ(weights(3), weights(3));
  EXPECT_NE(weights(3), weights(4));
}

TEST(Parameters, GoOutAndInUnchanged) {
  const MultiHeadAttentionConfig config{.model_dim = 12,
                                        .heads = 3,
                                        .key_dim = 7,
                                        .bias_kv = true,
                                        .score = Score::kCosine};
  const MultiHeadAttention first(config, 3);
  const MultiHeadAttention second(config, first.parameters());
  std::vector<float> query(5 * 12, 0.5f), key(4 * 7, 0.25f),
      value(4 * 12, -1.0f), out1(5 * 12), out2(5 * 12);
  query[3] = 2;
  key[9] = -3;
  value[20] = 4;
  const auto forward = [&](const MultiHeadAttention& layer,
                           std::vector<float>& out) {
    layer.forward(TensorView<const float, 2>{query.data(), {5, 12}},
                  TensorView<const float, 2>{key.data(), {4, 7}},
                  TensorView<const float, 2>{value.data(), {4, 12}},
                  TensorView<float, 2>{out.data(), {5, 12}});
  };
  forward(first, out1);
  forward(second, out2);
  EXPECT_EQ(out1, out2);
  EXPECT_NE(out1, std::vector<float>(5 * 12));
  ASSERT_EQ(names(first), names(second));
  for (const auto& [name, tensor] : first.parameters()) {
    const auto a = tensor.values<float>();
    const auto b = second.parameters().at(name).values<float>();
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin())) << name;
  }
}

TEST(Parameters, AConfigIsCompleted) {
  const MultiHeadAttention layer({.model_dim = 12, .heads = 3}, 1);
  EXPECT_EQ(layer.config().kv_heads, 3);
  EXPECT_EQ(layer.config().key_dim, 12);
  EXPECT_EQ(layer.config().value_dim, 12);
  EXPECT_EQ(layer.config().head_dim, 4);
  EXPECT_EQ(layer.config().value_head_dim, 4);
  EXPECT_EQ(layer.appended_keys(), 0);
}

TEST(Parameters, AConfigThatMakesNoSenseIsRefused) {
  EXPECT_EQ(refusal_of({}),
            "MultiHeadAttention: model_dim must be from 1 to 2^30; it is 0");
  EXPECT_EQ(refusal_of({.model_dim = std::int64_t{1} << 31}),
            "MultiHeadAttention: model_dim must be from 1 to 2^30; it is "
            "2147483648");
  EXPECT_EQ(refusal_of({.model_dim = 8, .heads = 0}),
            "MultiHeadAttention: heads must be from 1 to 2^30; it is 0");
  EXPECT_EQ(refusal_of({.model_dim = 8, .heads = 4, .kv_heads = 3}),
            "MultiHeadAttention: kv_heads must divide heads; heads is 4, "
            "kv_heads is 3");
  EXPECT_EQ(refusal_of({.model_dim = 8, .heads = 4, .kv_heads = -2}),
            "MultiHeadAttention: kv_heads must divide heads; heads is 4, "
            "kv_heads is -2");
  EXPECT_EQ(refusal_of({.model_dim = 8, .heads = 3}),
            "MultiHeadAttention: heads must divide model_dim if head_dim is "
            "not given; model_dim is 8, heads is 3");
  EXPECT_EQ(refusal_of({.model_dim = 8, .key_dim = -1}),
            "MultiHeadAttention: key_dim must be from 1 to 2^30; it is -1");
  EXPECT_EQ(refusal_of({.model_dim = 8, .value_dim = -1}),
            "MultiHeadAttention: value_dim must be from 1 to 2^30; it is -1");
  EXPECT_EQ(refusal_of({.model_dim = 8, .head_dim = -1}),
            "MultiHeadAttention: head_dim must be from 1 to 2^30; it is -1");
  EXPECT_EQ(
      refusal_of({.model_dim = 8, .value_head_dim = -1}),
      "MultiHeadAttention: value_head_dim must be from 1 to 2^30; it is -1");
  EXPECT_EQ(
      refusal_of({.model_dim = 8, .heads = 1 << 20, .head_dim = 1 << 20}),
      "MultiHeadAttention: heads times head_dim must be from 1 to 2^30; heads "
      "is 1048576, the wider head_dim is 1048576");
  EXPECT_EQ(refusal_of({.model_dim = 8, .dropout = 1.0f}),
            "MultiHeadAttention: dropout must be in [0, 1); it is 1");
  EXPECT_EQ(refusal_of({.model_dim = 8, .dropout = std::nanf("")}),
            "MultiHeadAttention: dropout must be in [0, 1); it is nan");
  EXPECT_EQ(refusal_of({.model_dim = 8,
                        .scale = std::numeric_limits<float>::infinity()}),
            "MultiHeadAttention: scale must be finite; it is inf");
}

TEST(Parameters, AStateDictThatDoesNotFitIsRefused) {
  const MultiHeadAttentionConfig config{.model_dim = 8, .heads = 2};
  const StateDict good = MultiHeadAttention(config, 1).parameters();
  const auto refusal_with = [&](auto&& change) {
    StateDict bad = good;
    change(bad);
    return refusal([&] { MultiHeadAttention(config, std::move(bad)); });
  };
  EXPECT_EQ(refusal_with([](StateDict&) {}), "accepted");
  EXPECT_EQ(refusal_with([](StateDict& d) { d.erase("out_proj.bias"); }),
            "MultiHeadAttention: the parameter out_proj.bias is missing; it "
            "must be [8]");
  EXPECT_EQ(refusal_with([](StateDict& d) {
              d["in_proj_weight"] = Tensor(Shape{8, 24});
            }),
            "MultiHeadAttention: the parameter in_proj_weight must be float32 "
            "[24, 8]; it is float32 [8, 24]");
  EXPECT_EQ(refusal_with([](StateDict& d) {
              d["out_proj.bias"] = Tensor(DType::kBFloat16, {8});
            }),
            "MultiHeadAttention: the parameter out_proj.bias must be float32 "
            "[8]; it is bfloat16 [8]");
  EXPECT_EQ(refusal_with([](StateDict& d) { d["bias_k"] = Tensor(); }),
            "MultiHeadAttention: there must be no parameter bias_k; it is "
            "[0]");
}

// A layer of width 8, called with views of these shapes.
struct Shapes {
  std::array<std::int64_t, 3> query{2, 3, 8}, key{2, 4, 8}, value{2, 4, 8},
      out{2, 3, 8};
};

std::string forward_refusal(const Shapes& shapes,
                            MultiHeadAttentionOptions options = {}) {
  const MultiHeadAttention layer({.model_dim = 8, .heads = 2}, 1);
  std::vector<float> input(1000), out(1000, 7.0f);
  const std::string text = refusal([&] {
    layer.forward({input.data(), shapes.query}, {input.data(), shapes.key},
                  {input.data(), shapes.value},
                  TensorView<float, 3>{out.data(), shapes.out}, options);
  });
  if (text != "accepted") {
    EXPECT_THAT(out, ::testing::Each(7.0f)) << "something was written";
  }
  return text;
}

TEST(Forward, RefusesShapesThatDisagree) {
  EXPECT_EQ(forward_refusal({}), "accepted");
  EXPECT_EQ(forward_refusal({.query = {2, 3, 7}}),
            "MultiHeadAttention::forward: query must be [batch, q_len, 8]; it "
            "is [2, 3, 7]");
  EXPECT_EQ(forward_refusal({.key = {2, 4, 9}}),
            "MultiHeadAttention::forward: key must be [2, kv_len, 8], with the "
            "query's batch; it is [2, 4, 9]");
  EXPECT_EQ(forward_refusal({.key = {1, 4, 8}}),
            "MultiHeadAttention::forward: key must be [2, kv_len, 8], with the "
            "query's batch; it is [1, 4, 8]");
  for (const auto& shape : {std::array<std::int64_t, 3>{2, 5, 8},
                            std::array<std::int64_t, 3>{3, 4, 8},
                            std::array<std::int64_t, 3>{2, 4, 7}}) {
    EXPECT_EQ(forward_refusal({.value = shape}),
              "MultiHeadAttention::forward: value must be [2, 4, 8], with the "
              "key's batch and length; it is " +
                  to_string(shape));
  }
  EXPECT_EQ(forward_refusal({.out = {2, 4, 8}}),
            "MultiHeadAttention::forward: out must have the query's shape; out "
            "is [2, 4, 8], query is [2, 3, 8]");
}

TEST(Forward, RefusesOptionsThatDisagree) {
  std::vector<float> memory(1000);
  EXPECT_EQ(forward_refusal({}, {.weights = {memory.data(), {2, 2, 3, 5}}}),
            "MultiHeadAttention::forward: weights must be [2, 2, 3, 4], "
            "[batch, heads, q_len, all_keys]; they are [2, 2, 3, 5]");
  EXPECT_EQ(
      forward_refusal({}, {.average_weights = {memory.data(), {2, 2, 4}}}),
      "MultiHeadAttention::forward: average_weights must be [2, 3, 4], [batch, "
      "q_len, all_keys]; they are [2, 2, 4]");
  // The attention below refuses in its own name, before anything is written.
  EXPECT_THAT(forward_refusal({}, {.alibi_slopes = {memory.data(), 3}}),
              ::testing::StartsWith("attention_forward: "));
  EXPECT_THAT(
      forward_refusal(
          {}, {.mask = mask::lengths(std::vector<std::int64_t>{1, 2, 3})}),
      ::testing::StartsWith("attention_forward: "));
  EXPECT_THAT(forward_refusal({}, {.bias = {memory.data(), {1, 1, 3, 5}}}),
              ::testing::StartsWith("attention_forward: "));
}

}  // namespace
}  // namespace regard::nn
