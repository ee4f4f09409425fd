// SPDX-License-Identifier: Apache-2.0
#include "regard/autograd/tape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "regard/autograd/operations.h"
#include "regard/core/error.h"
#include "regard/core/random.h"
#include "support/refusal.h"

namespace regard::autograd {
namespace {

using test::refusal;

Tensor random_tensor(Shape shape, std::uint64_t seed) {
  Tensor tensor(std::move(shape));
  Random random(seed);
  for (float& value : tensor.values<float>()) value = random.normal();
  return tensor;
}

constexpr std::int64_t kRows = 512;
constexpr std::int64_t kWidth = 64;
constexpr std::size_t kMatrix = kRows * kWidth * sizeof(float);

// A chain of sums needs nothing of its inputs for the gradient.
TEST(TapeMemory, KeepsOnlyWhatBackwardNeeds) {
  const Tensor x = random_tensor({kRows, kWidth}, 1);
  Tape tape;
  const Variable in = tape.input(x.view<float, 2>());
  Variable out = in;
  for (int i = 0; i < 20; ++i) out = add(tape, out, in);
  EXPECT_LE(tape.pool().peak_bytes(), 3 * kMatrix);
}

TEST(TapeMemory, IsFreedAsTheTapeUnwinds) {
  const Tensor x = random_tensor({kRows, kWidth}, 1);
  const Tensor w = random_tensor({kWidth, kWidth}, 2);
  Tensor d_w({kWidth, kWidth});
  constexpr int kLayers = 20;
  Tape tape;
  Variable out = tape.input(x.view<float, 2>());
  const Variable weight = tape.parameter(w, &d_w);
  for (int i = 0; i < kLayers; ++i) out = linear(tape, out, weight, {});
  const std::size_t forward = tape.pool().bytes_in_use();
  EXPECT_GE(forward, kLayers * kMatrix);
  tape.pool().reset_peak();
  const Tensor d_out = random_tensor({kRows, kWidth}, 3);
  tape.backward(out, d_out.view<float, 2>());
  // Gradients of all layers at once would be as much again.
  EXPECT_LE(tape.pool().peak_bytes(), forward + 6 * kMatrix);
  out = {};
  // The gradient of the input is left.
  EXPECT_LE(tape.pool().bytes_in_use(), 2 * kMatrix);
}

TEST(TapeMemory, WithoutRecordingHoldsTwoLayersAtATime) {
  const Tensor x = random_tensor({kRows, kWidth}, 1);
  const Tensor w = random_tensor({kWidth, kWidth}, 2);
  Tape tape(Record::kNo);
  Variable out = tape.constant(x.view<float, 2>());
  const Variable weight = tape.parameter(w, nullptr);
  for (int i = 0; i < 20; ++i) out = linear(tape, out, weight, {});
  EXPECT_LE(tape.pool().peak_bytes(), 3 * kMatrix);
  EXPECT_FALSE(out.needs_gradient());
}

TEST(TapeGradients, OfParametersAreAddedToWhatIsThere) {
  const Tensor x = random_tensor({3, 2}, 1);
  const Tensor w = random_tensor({4, 2}, 2);
  const Tensor d_out = random_tensor({3, 4}, 3);
  Tensor once({4, 2}), twice({4, 2});
  for (const int calls : {1, 2}) {
    Tensor& gradient = calls == 1 ? once : twice;
    for (int i = 0; i < calls; ++i) {
      Tape tape;
      const Variable weight = tape.parameter(w, &gradient);
      const Variable out =
          linear(tape, tape.constant(x.view<float, 2>()), weight, {});
      tape.backward(out, d_out.view<float, 2>());
    }
  }
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(twice.values<float>()[i], 2 * once.values<float>()[i], 1e-5);
  }
}

TEST(TapeGradients, OfWhatNothingDependsOnAreZero) {
  const Tensor x = random_tensor({3, 2}, 1);
  Tape tape;
  const Variable used = tape.input(x.view<float, 2>());
  const Variable unused = tape.input(x.view<float, 2>());
  const Variable out = add(tape, used, used);
  tape.backward(out, x.view<float, 2>());
  const Tensor zero = tape.gradient_of(unused);
  EXPECT_THAT(zero.values<float>(), ::testing::Each(0.0f));
  const Tensor both = tape.gradient_of(used);
  EXPECT_EQ(both.values<float>()[1], 2 * x.values<float>()[1]);
}

TEST(TapeRefusals, NameTheRule) {
  using ::testing::StartsWith;
  const Tensor cube({1, 2, 3}), matrix({2, 3});
  Tensor other({3, 2});
  Tape tape;
  EXPECT_THAT(refusal([&] { tape.parameter(cube, nullptr); }),
              StartsWith("Tape::parameter: a parameter must have one or two "
                         "extents; it is [1, 2, 3]"));
  EXPECT_THAT(refusal([&] { tape.parameter(matrix, &other); }),
              StartsWith("Tape::parameter: the gradient must have the "
                         "parameter's shape; it is [3, 2], the parameter is "
                         "[2, 3]"));
  const float values[8] = {};
  EXPECT_THAT(refusal([&] {
                tape.constant({values, {2, 3}, {4, 1}});
              }),
              StartsWith("Tape::constant: the rows must follow each other; "
                         "strides are [4, 1]"));
  const Variable constant = tape.constant(matrix.view<float, 2>());
  EXPECT_THAT(
      refusal([&] { tape.backward(constant, matrix.view<float, 2>()); }),
      StartsWith("Tape::backward: the result must depend on a parameter "
                 "or an input"));
  const Variable input = tape.input(matrix.view<float, 2>());
  EXPECT_THAT(refusal([&] {
                tape.backward(input, std::as_const(other).view<float, 2>());
              }),
              StartsWith("Tape::backward: d_result must have the result's "
                         "shape; it is [3, 2], the result is [2, 3]"));
  EXPECT_THAT(refusal([&] { tape.gradient_of(constant); }),
              StartsWith("Tape::gradient_of: the variable must be an input of "
                         "this tape"));
}

}  // namespace
}  // namespace regard::autograd
