// SPDX-License-Identifier: Apache-2.0
// Calls whose types are known at run time: what they refuse, and that they do
// what those of known types do, whose results other tests hold to a reference.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "regard/attention/attention.h"
#include "regard/attention/backward.h"
#include "regard/attention/weights.h"
#include "support/refusal.h"

namespace regard {
namespace {

ConstUntypedView<4> read(const Tensor& tensor) {
  const Shape& s = tensor.shape();
  return {tensor.bytes(),
          tensor.dtype(),
          {s[0], s[1], s[2], s[3]},
          {s[1] * s[2] * s[3], s[2] * s[3], s[3], 1}};
}
UntypedView<4> write(Tensor& tensor) {
  const ConstUntypedView<4> view = read(tensor);
  return {tensor.bytes(), view.dtype, view.shape, view.strides};
}

// One query and two keys, of which the second has twice the score: the weights
// are 1 / (1 + e) and e / (1 + e), so out is their e / (1 + e).
struct Small {
  Tensor q, k, v, out;
  explicit Small(DType dtype)
      : q(filled(dtype, {1, 1, 1, 1}, {1})),
        k(filled(dtype, {1, 1, 2, 1}, {1, 2})),
        v(filled(dtype, {1, 1, 2, 1}, {0, 1})),
        out(dtype, {1, 1, 1, 1}) {}

  static Tensor filled(DType dtype, Shape shape, std::vector<double> values) {
    Tensor tensor(dtype, std::move(shape));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<float>(values[i]);
      if (dtype == DType::kFloat32) tensor.values<float>()[i] = value;
      if (dtype == DType::kFloat64) tensor.values<double>()[i] = values[i];
      if (dtype == DType::kBFloat16) {
        tensor.values<BFloat16>()[i] = BFloat16(value);
      }
      if (dtype == DType::kFloat16) {
        tensor.values<Float16>()[i] = Float16(value);
      }
    }
    return tensor;
  }
  double result() const {
    switch (out.dtype()) {
      case DType::kFloat64:
        return out.values<double>()[0];
      case DType::kBFloat16:
        return static_cast<float>(out.values<BFloat16>()[0]);
      case DType::kFloat16:
        return static_cast<float>(out.values<Float16>()[0]);
      default:
        return out.values<float>()[0];
    }
  }
};
constexpr double kExpected = 0.7310585786300049;  // e / (1 + e)

TEST(UntypedAttention, ComputesEveryElementType) {
  const AttentionOptions floats;
  const AttentionOptionsF64 doubles;
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::kFloat32, 1e-6}, std::pair{DType::kFloat64, 1e-15},
        std::pair{DType::kBFloat16, 2e-3}, std::pair{DType::kFloat16, 3e-4}}) {
    SCOPED_TRACE(to_string(dtype));
    Small s(dtype);
    const bool is_double = dtype == DType::kFloat64;
    attention_forward(
        read(s.q), read(s.k), read(s.v), write(s.out),
        is_double ? AttentionOptionsRef(doubles) : AttentionOptionsRef(floats));
    EXPECT_NEAR(s.result(), kExpected, tolerance);
  }
}

TEST(UntypedAttention, GivesWeightsAndGradients) {
  Small s(DType::kFloat32);
  Tensor weights({1, 1, 1, 2});
  attention_weights(read(s.q), read(s.k),
                    WeightsRequest{.weights = weights.view<float, 4>()},
                    AttentionOptions{});
  EXPECT_NEAR(weights.values<float>()[1], kExpected, 1e-6);

  Tensor lse({1, 1, 1});
  const AttentionOptions options{.log_sum_exp = lse.view<float, 3>()};
  attention_with_weights(read(s.q), read(s.k), read(s.v), write(s.out),
                         WeightsRequest{}, options);
  const Tensor d_out({1}, {1, 1, 1, 1});
  Tensor d_v({1, 1, 2, 1});
  attention_backward({.q = read(s.q),
                      .k = read(s.k),
                      .v = read(s.v),
                      .out = read(s.out),
                      .d_out = read(d_out)},
                     {.v = write(d_v)}, options);
  EXPECT_NEAR(d_v.values<float>()[1], kExpected, 1e-6);
}

TEST(UntypedAttention, RefusesTypesThatDoNotBelongTogether) {
  Small s(DType::kFloat32), d(DType::kFloat64);
  const AttentionOptions options;
  const auto call = [&](const Tensor& q, const Tensor& k, Tensor& out) {
    return test::refusal([&] {
      attention_forward(read(q), read(k), read(s.v), write(out), options);
    });
  };
  EXPECT_EQ(call(s.q, d.k, s.out),
            "attention_forward: k must be float32 where q is float32; it is "
            "float64");
  EXPECT_EQ(call(s.q, s.k, d.out),
            "attention_forward: out must be float32 where q is float32; it is "
            "float64");
  const Tensor whole(DType::kInt32, {1, 1, 1, 1});
  EXPECT_EQ(call(whole, s.k, s.out),
            "attention_forward: q must be float32, bfloat16, float16 or "
            "float64; it is int32");
  EXPECT_EQ(test::refusal([&] {
              attention_forward(read(d.q), read(d.k), read(d.v), write(d.out),
                                options);
            }),
            "attention_forward: options must be those in double where q is "
            "float64");
  Tensor bias(DType::kFloat64, {1, 1, 1, 2});
  EXPECT_EQ(
      test::refusal([&] {
        attention_backward({.q = read(s.q), .k = read(s.k), .v = read(s.v)},
                           {.bias = write(bias)}, options);
      }),
      "attention_backward: the gradient of bias must be float32 where q is "
      "float32; it is float64");
}

}  // namespace
}  // namespace regard
