// SPDX-License-Identifier: Apache-2.0
#include "regard/nn/norms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "regard/core/random.h"
#include "regard/tensor/tensor.h"
#include "support/onnx_cases.h"
#include "support/refusal.h"

namespace regard::nn {
namespace {

using test::refusal;

Tensor random_tensor(Shape shape, std::uint64_t seed) {
  Tensor tensor(std::move(shape));
  Random random(seed);
  for (float& x : tensor.values<float>()) x = random.normal();
  return tensor;
}

TEST(RmsNorm, HoldsTheCasesOfTheOnnxStandard) {
  const auto cases = test::read_onnx_cases("RMSNormalization");
  if (cases.empty()) GTEST_SKIP() << test::onnx_folder() << " is not there";
  EXPECT_EQ(cases.size(), 19u);
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    // All dimensions from `axis` on are one row.
    const auto& shape = c.inputs[0].shape;
    std::int64_t axis = c.node.integer("axis", -1);
    if (axis < 0) axis += static_cast<std::int64_t>(shape.size());
    std::int64_t rows = 1, dim = 1;
    for (std::int64_t i = 0; i < std::ssize(shape); ++i) {
      (i < axis ? rows : dim) *= shape[static_cast<std::size_t>(i)];
    }
    const std::vector<float> x(c.inputs[0].values.begin(),
                               c.inputs[0].values.end());
    const std::vector<float> weight(c.inputs[1].values.begin(),
                                    c.inputs[1].values.end());
    std::vector<float> out(x.size());
    const auto epsilon = c.node.floats.find("epsilon");
    rms_norm(
        {x.data(), {rows, dim}}, {weight.data(), {dim}},
        {out.data(), {rows, dim}},
        {.epsilon = epsilon == c.node.floats.end() ? 1e-5f : epsilon->second});
    ASSERT_EQ(out.size(), c.outputs[0].values.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double wanted = c.outputs[0].values[i];
      ASSERT_NEAR(out[i], wanted, 1e-6 + 1e-6 * std::abs(wanted));
    }
  }
}

TEST(Norms, ThreadsChangeNoBit) {
  const std::int64_t rows = 700, dim = 193;
  const Tensor x = random_tensor({rows, dim}, 1);
  const Tensor d_out = random_tensor({rows, dim}, 2);
  const Tensor weight = random_tensor({dim}, 3);
  const Tensor bias = random_tensor({dim}, 4);
  const auto run = [&](int threads) {
    std::vector<float> all;
    Tensor out({rows, dim}), mean({rows}), rstd({rows});
    Tensor d_x({rows, dim}), d_weight({dim}), d_bias({dim});
    const auto keep = [&all](const Tensor& t) {
      const auto values = t.values<float>();
      all.insert(all.end(), values.begin(), values.end());
    };
    NormOptions options{.rstd = rstd.view<float, 1>(),
                        .threads = {.count = threads}};
    rms_norm(x.view<float, 2>(), weight.view<float, 1>(), out.view<float, 2>(),
             options);
    rms_norm_backward(
        x.view<float, 2>(), weight.view<float, 1>(), d_out.view<float, 2>(),
        {.d_x = d_x.view<float, 2>(), .d_weight = d_weight.view<float, 1>()},
        options);
    for (const Tensor* t : {&out, &rstd, &d_x, &d_weight}) keep(*t);
    options.mean = mean.view<float, 1>();
    layer_norm(x.view<float, 2>(), weight.view<float, 1>(),
               bias.view<float, 1>(), out.view<float, 2>(), options);
    layer_norm_backward(x.view<float, 2>(), weight.view<float, 1>(),
                        d_out.view<float, 2>(),
                        {d_x.view<float, 2>(), d_weight.view<float, 1>(),
                         d_bias.view<float, 1>()},
                        options);
    for (const Tensor* t : {&out, &mean, &rstd, &d_x, &d_weight, &d_bias}) {
      keep(*t);
    }
    return all;
  };
  const std::vector<float> alone = run(1);
  EXPECT_EQ(run(2), alone);
  EXPECT_EQ(run(5), alone);
}

TEST(Norms, SayWhatTheyRefuse) {
  Tensor x({2, 3}), other({3, 2}), weight({4}), two({2});
  const Tensor& cx = x;
  const auto rows = cx.view<float, 2>();
  EXPECT_EQ(refusal([&] { rms_norm(rows, {}, other.view<float, 2>()); }),
            "rms_norm: out must have the shape of x; it is [3, 2], x is [2, "
            "3]");
  EXPECT_EQ(refusal([&] {
              rms_norm(rows, weight.view<float, 1>(), x.view<float, 2>());
            }),
            "rms_norm: weight must be [3]; it is [4]");
  EXPECT_EQ(refusal([&] {
              layer_norm(rows, {}, weight.view<float, 1>(), x.view<float, 2>());
            }),
            "layer_norm: bias must be [3]; it is [4]");
  EXPECT_EQ(refusal([&] {
              rms_norm(rows, {}, x.view<float, 2>(), {.epsilon = -1.0f});
            }),
            "rms_norm: epsilon must be finite and not negative; it is -1");
  EXPECT_EQ(refusal([&] {
              rms_norm(rows, {}, x.view<float, 2>(),
                       {.mean = two.view<float, 1>()});
            }),
            "rms_norm: there is no mean to write; mean is [2]");
  EXPECT_EQ(refusal([&] {
              layer_norm(rows, {}, {}, x.view<float, 2>(),
                         {.rstd = weight.view<float, 1>()});
            }),
            "layer_norm: rstd must be [2]; it is [4]");
  EXPECT_EQ(refusal([&] {
              rms_norm_backward(rows, {}, rows, {.d_x = x.view<float, 2>()},
                                {});
            }),
            "rms_norm_backward: backward needs the rstd that forward wrote");
  EXPECT_EQ(refusal([&] {
              layer_norm_backward(rows, {}, rows, {.d_x = x.view<float, 2>()},
                                  {.rstd = two.view<float, 1>()});
            }),
            "layer_norm_backward: backward needs the rstd and mean that "
            "forward wrote");
  EXPECT_EQ(refusal([&] {
              rms_norm_backward(rows, {}, rows,
                                {.d_bias = two.view<float, 1>()},
                                {.rstd = two.view<float, 1>()});
            }),
            "rms_norm_backward: there is no bias; d_bias is [2]");
  EXPECT_EQ(refusal([&] {
              rms_norm_backward(rows, {}, rows,
                                {.d_weight = two.view<float, 1>()},
                                {.rstd = two.view<float, 1>()});
            }),
            "rms_norm_backward: d_weight must be [3]; it is [2]");
}

}  // namespace
}  // namespace regard::nn
