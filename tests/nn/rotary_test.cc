// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/rotary.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "regard/core/random.h"
#include "support/onnx_cases.h"
#include "support/refusal.h"

namespace regard::nn {
namespace {

using test::refusal;

std::vector<float> floats(const test::OnnxTensor& tensor) {
  return {tensor.values.begin(), tensor.values.end()};
}

TEST(Rotary, HoldsTheCasesOfTheOnnxStandard) {
  const auto cases = test::read_onnx_cases("RotaryEmbedding");
  if (cases.empty()) GTEST_SKIP() << test::onnx_folder() << " is not there";
  EXPECT_EQ(cases.size(), 8u);
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const auto& shape = c.inputs[0].shape;
    const std::vector<float> x = floats(c.inputs[0]);
    const std::vector<float> cos = floats(c.inputs[1]);
    const std::vector<float> sin = floats(c.inputs[2]);
    std::vector<float> out(x.size());
    // [batch, heads, len, dim], or [batch, len, heads * dim].
    const bool split = shape.size() == 4;
    const std::int64_t batch = shape[0], len = split ? shape[2] : shape[1];
    const std::int64_t heads = split ? shape[1] : c.node.ints.at("num_heads");
    const std::int64_t dim = split ? shape[3] : shape[2] / heads;
    const std::array<std::int64_t, 4> extents{batch, heads, len, dim};
    const std::array<std::int64_t, 4> strides =
        split
            ? std::array{heads * len * dim, len * dim, dim, std::int64_t{1}}
            : std::array{len * heads * dim, dim, heads * dim, std::int64_t{1}};
    // Without ids, the tables have a row for each token of each sequence.
    std::vector<std::int64_t> ids;
    if (c.inputs.size() > 3) {
      ids.assign(c.inputs[3].values.begin(), c.inputs[3].values.end());
    } else {
      for (std::int64_t i = 0; i < batch * len; ++i) ids.push_back(i);
    }
    const std::int64_t half = c.inputs[1].shape.back();
    const std::int64_t rows = static_cast<std::int64_t>(cos.size()) / half;
    rotary_forward({x.data(), extents, strides}, {cos.data(), {rows, half}},
                   {sin.data(), {rows, half}}, {out.data(), extents, strides},
                   {.pairing = c.node.integer("interleaved", 0) != 0
                                   ? RotaryPairing::kInterleaved
                                   : RotaryPairing::kHalfSplit,
                    .positions = {ids.data(), {batch, len}}});
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_NEAR(out[i], c.outputs[0].values[i], 1e-6);
    }
  }
}

// The frequency of pair i, back from the table's first two rows.
std::vector<double> frequencies(const RotaryConfig& config) {
  const RotaryTable table = rotary_table(config, 2);
  std::vector<double> f;
  for (std::int64_t i = 0; i < config.rotary_dim / 2; ++i) {
    f.push_back(std::atan2(table.sin.view<float, 2>()(1, i),
                           table.cos.view<float, 2>()(1, i)));
  }
  return f;
}

TEST(RotaryTable, HasTheAnglesOfThePaper) {
  const RotaryTable table = rotary_table({.rotary_dim = 6, .base = 500.0}, 300);
  for (std::int64_t p = 0; p < 300; ++p) {
    for (std::int64_t i = 0; i < 3; ++i) {
      const double angle =
          static_cast<double>(p) / std::pow(500.0, static_cast<double>(i) / 3);
      ASSERT_EQ((table.cos.view<float, 2>()(p, i)),
                static_cast<float>(std::cos(angle)))
          << p << " " << i;
      ASSERT_EQ((table.sin.view<float, 2>()(p, i)),
                static_cast<float>(std::sin(angle)));
    }
  }
}

TEST(RotaryTable, ScalesAsItIsTold) {
  const RotaryConfig plain{.rotary_dim = 64};
  const auto own = frequencies(plain);
  RotaryConfig scaled = plain;
  scaled.factor = 4;
  scaled.trained_length = 2048;

  scaled.scaling = RotaryScaling::kLinear;
  const auto linear = frequencies(scaled);
  scaled.scaling = RotaryScaling::kNtk;
  const auto ntk = frequencies(scaled);
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_NEAR(linear[i], own[i] / 4, 1e-7);
    // The first pair stays as it is, the last is slowed down by the factor.
    EXPECT_NEAR(ntk[i], own[i] * std::pow(4.0, -static_cast<double>(i) / 31),
                2e-7);
  }

  // Of the 2048 tokens trained on, pair i sees 2048 f_i / 2 pi turns.
  scaled.scaling = RotaryScaling::kLlama3;
  const auto llama3 = frequencies(scaled);
  for (std::size_t i = 0; i < own.size(); ++i) {
    const double turns = 2048 * own[i] / (2 * std::numbers::pi);
    double wanted = own[i] / 4;
    if (turns > 4) {
      wanted = own[i];
    } else if (turns > 1) {
      const double smooth = (turns - 1) / 3;
      wanted = (1 - smooth) * own[i] / 4 + smooth * own[i];
    }
    EXPECT_NEAR(llama3[i], wanted, 3e-7) << i;
  }

  // The corners of the ramp are the pairs with 32 turns and with one.
  scaled.scaling = RotaryScaling::kYarn;
  const RotaryTable table = rotary_table(scaled, 2);
  EXPECT_NEAR((table.cos.view<float, 2>()(0, 0)), 0.1 * std::log(4.0) + 1,
              1e-6);
  const auto yarn = frequencies(scaled);
  const auto corner = [](double turns) {
    return 32 * std::log(2048 / (turns * 2 * std::numbers::pi)) /
           std::log(10000.0);
  };
  const double low = std::floor(corner(32)), high = std::ceil(corner(1));
  for (std::size_t i = 0; i < own.size(); ++i) {
    const double at = static_cast<double>(i);
    const double slowed = at <= low    ? 0
                          : at >= high ? 1
                                       : (at - low) / (high - low);
    EXPECT_NEAR(yarn[i], slowed * own[i] / 4 + (1 - slowed) * own[i], 3e-7);
  }
  scaled.attention_factor = 1.5;
  EXPECT_EQ((rotary_table(scaled, 1).cos.view<float, 2>()(0, 3)), 1.5f);
}

struct Problem {
  RotaryPairing pairing;
  std::int64_t dim, rotary_dim;
};

class RotaryGradient : public ::testing::TestWithParam<Problem> {};

TEST_P(RotaryGradient, IsTheSlope) {
  const Problem& p = GetParam();
  const std::int64_t batch = 2, heads = 3, len = 5;
  const RotaryTable table = rotary_table({.rotary_dim = p.rotary_dim}, 100);
  const std::vector<std::int64_t> positions = {3,  99, 0,  7, 7,
                                               50, 51, 52, 1, 2};
  const RotaryOptions options{.pairing = p.pairing,
                              .positions = {positions.data(), {batch, len}}};
  const Shape shape{batch, heads, len, p.dim};
  Tensor x(shape), d_out(shape), d_x(shape), out(shape);
  Random random(3);
  for (float& v : x.values<float>()) v = random.normal();
  for (float& v : d_out.values<float>()) v = random.normal();
  const auto cos = static_cast<const Tensor&>(table.cos).view<float, 2>();
  const auto sin = static_cast<const Tensor&>(table.sin).view<float, 2>();
  rotary_backward(d_out.view<float, 4>(), cos, sin, d_x.view<float, 4>(),
                  options);
  // Linear: the slope along a direction is the image of the direction.
  for (std::int64_t i = 0; i < x.size(); i += 7) {
    Tensor unit(shape);
    unit.values<float>()[static_cast<std::size_t>(i)] = 1.0f;
    rotary_forward(unit.view<float, 4>(), cos, sin, out.view<float, 4>(),
                   options);
    double slope = 0;
    for (std::int64_t j = 0; j < x.size(); ++j) {
      const auto at = static_cast<std::size_t>(j);
      slope += static_cast<double>(out.values<float>()[at]) *
               static_cast<double>(d_out.values<float>()[at]);
    }
    EXPECT_NEAR(d_x.values<float>()[static_cast<std::size_t>(i)], slope, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Pairings, RotaryGradient,
    ::testing::Values(Problem{RotaryPairing::kHalfSplit, 16, 16},
                      Problem{RotaryPairing::kHalfSplit, 59, 20},
                      Problem{RotaryPairing::kInterleaved, 16, 16},
                      Problem{RotaryPairing::kInterleaved, 59, 20}),
    [](const auto& problem) {
      const Problem& p = problem.param;
      return (p.pairing == RotaryPairing::kHalfSplit ? "halves_"
                                                     : "neighbours_") +
             std::to_string(p.rotary_dim) + "_of_" + std::to_string(p.dim);
    });

TEST(Rotary, ThreadsPlacesAndStridesChangeNoBit) {
  const std::int64_t batch = 3, heads = 4, len = 400, dim = 64;
  const RotaryTable table = rotary_table({.rotary_dim = 48}, len);
  Tensor x({batch, len, heads, dim});
  Random random(8);
  for (float& v : x.values<float>()) v = random.normal();
  const TensorView<float, 4>::Extents shape{batch, heads, len, dim};
  const TensorView<float, 4>::Extents strides{len * heads * dim, dim,
                                              heads * dim, 1};
  const auto run = [&](int threads, bool in_place) {
    Tensor source = x, out({batch, heads, len, dim});
    const TensorView<float, 4> from{source.values<float>().data(), shape,
                                    strides};
    const TensorView<float, 4> to = in_place ? from : out.view<float, 4>();
    rotary_forward(from, table.cos.view<float, 2>(), table.sin.view<float, 2>(),
                   to, {.threads = {.count = threads}});
    std::vector<float> values;
    for (std::int64_t i = 0; i < x.size(); ++i) {
      values.push_back(to(i / (heads * len * dim), i / (len * dim) % heads,
                          i / dim % len, i % dim));
    }
    return values;
  };
  const auto alone = run(1, false);
  EXPECT_EQ(run(4, false), alone);
  EXPECT_EQ(run(2, true), alone);
}

TEST(Rotary, SaysWhatItRefuses) {
  const auto table = [](const RotaryConfig& c) {
    return refusal([&] { rotary_table(c, 4); });
  };
  EXPECT_EQ(table({.rotary_dim = 3}),
            "rotary_table: rotary_dim must be even and not negative; it is 3");
  EXPECT_EQ(table({.rotary_dim = 4, .base = 1}),
            "rotary_table: base must be finite and above 1; it is 1");
  EXPECT_EQ(table({.rotary_dim = 4, .factor = 0.5}),
            "rotary_table: factor must be finite and at least 1; it is 0.5");
  EXPECT_EQ(table({.rotary_dim = 4, .factor = 2}),
            "rotary_table: a factor needs a scaling; it is 2");
  EXPECT_EQ(table({.rotary_dim = 2, .scaling = RotaryScaling::kNtk}),
            "rotary_table: NTK scaling needs a rotary_dim above 2; it is 2");
  EXPECT_EQ(table({.rotary_dim = 4, .scaling = RotaryScaling::kYarn}),
            "rotary_table: trained_length must be positive for this scaling; "
            "it is 0");
  EXPECT_EQ(table({.rotary_dim = 4,
                   .scaling = RotaryScaling::kYarn,
                   .trained_length = 9,
                   .beta_fast = 1,
                   .beta_slow = 2}),
            "rotary_table: 0 < beta_slow <= beta_fast must hold; they are 2 "
            "and 1");
  EXPECT_EQ(table({.rotary_dim = 4, .attention_factor = -1}),
            "rotary_table: attention_factor must be finite and not negative; "
            "it is -1");
  EXPECT_EQ(table({.rotary_dim = 4,
                   .scaling = RotaryScaling::kLlama3,
                   .trained_length = 9,
                   .low_frequency = 4}),
            "rotary_table: 0 < low_frequency < high_frequency must hold; they "
            "are 4 and 4");
  EXPECT_EQ(refusal([] { rotary_table({.rotary_dim = 4}, -1); }),
            "rotary_table: positions must not be negative; got -1");

  Tensor x({1, 2, 3, 8}), other({1, 2, 3, 6});
  const RotaryTable t = rotary_table({.rotary_dim = 8}, 5);
  const RotaryTable narrow = rotary_table({.rotary_dim = 4}, 5);
  const RotaryTable wide = rotary_table({.rotary_dim = 10}, 5);
  const RotaryTable few = rotary_table({.rotary_dim = 8}, 2);
  const auto rotate = [&](const Tensor& to, const Tensor& cos,
                          const Tensor& sin,
                          std::vector<std::int64_t> positions = {}) {
    RotaryOptions options;
    if (!positions.empty()) {
      options.positions = {positions.data(), {1, std::ssize(positions)}};
    }
    return refusal([&] {
      rotary_forward(x.view<float, 4>(), cos.view<float, 2>(),
                     sin.view<float, 2>(),
                     const_cast<Tensor&>(to).view<float, 4>(), options);
    });
  };
  EXPECT_EQ(rotate(other, t.cos, t.sin),
            "rotary_forward: both sides must have the same shape; they are [1, "
            "2, 3, 8] and [1, 2, 3, 6]");
  EXPECT_EQ(rotate(x, t.cos, narrow.sin),
            "rotary_forward: cos and sin must have the same shape; they are "
            "[5, 4] and [5, 2]");
  EXPECT_EQ(rotate(x, wide.cos, wide.sin),
            "rotary_forward: the tables rotate twice their width of elements, "
            "which must fit in a vector; they are [5, 5], the vectors are [1, "
            "2, 3, 8]");
  EXPECT_EQ(rotate(x, few.cos, few.sin),
            "rotary_forward: each position needs a row of the tables; len is "
            "3, the tables are [2, 4]");
  EXPECT_EQ(rotate(x, t.cos, t.sin, {0, 1}),
            "rotary_forward: positions must be [1 or 1, 3]; they are [1, 2]");
  EXPECT_EQ(rotate(x, t.cos, t.sin, {0, 5, 1}),
            "rotary_forward: each position needs a row of the tables; position "
            "5 came, the tables are [5, 4]");
  EXPECT_EQ(rotate(x, t.cos, t.sin, {0, -1, 1}),
            "rotary_forward: each position needs a row of the tables; position "
            "-1 came, the tables are [5, 4]");
}

}  // namespace
}  // namespace regard::nn
