// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "autograd/gradients.h"
#include "regard/autograd/operations.h"
#include "support/reference_operations.h"
#include "support/refusal.h"

namespace regard::autograd {
namespace {

using test::refusal;

TEST(CrossEntropy, IsTheDefinitionAndSoAreItsGradients) {
  const std::vector<std::int32_t> targets{4, 0, 70, 3, 3};
  for (const float smoothing : {0.0f, 0.1f}) {
    const Matrix x = random_matrix(5, 6, 1);
    const Matrix weight = random_matrix(71, 6, 2);
    const Matrix bias = random_matrix(1, 71, 3);
    const auto definition = [&](const Matrices& m) {
      Matrix loss(1, 1);
      loss(0, 0) = testing::reference_cross_entropy(
          testing::reference_linear(m[0], m[1], m[2]), targets,
          double{smoothing});
      return loss;
    };
    const Tensor xs = as_tensor(x), weights = as_tensor(weight),
                 biases = as_tensor(bias);
    Tape tape;
    const Variables v{tape.input(xs.view<float, 2>()),
                      tape.input(weights.view<float, 2>()),
                      tape.input(biases.view<float, 2>())};
    const CrossEntropySum sum =
        cross_entropy(tape, v[0], v[1], v[2], targets, smoothing);
    tape.backward();
    const Matrices inputs{x, weight, bias};
    EXPECT_NEAR(sum.loss, definition(inputs)(0, 0), 1e-4);
    EXPECT_NEAR(sum.likelihood,
                testing::reference_cross_entropy(
                    testing::reference_linear(x, weight, bias), targets, 0),
                1e-4);
    Matrix one(1, 1);
    one(0, 0) = 1;
    for (std::size_t i = 0; i < 3; ++i) {
      const Tensor gradient = tape.gradient_of(v[i]);
      expect_near(gradient.values<float>().data(),
                  differences(definition, inputs, one, i), "gradient");
    }
  }
}

// So many words that the rows of a task are no whole chains of the product.
TEST(CrossEntropy, GradientsHaveTheSameBitsForAnyThreadsWithALargeVocabulary) {
  constexpr std::int64_t kVocab = 30011, kRows = 200;
  const Tensor x = as_tensor(random_matrix(kRows, 8, 1));
  const Tensor weight = as_tensor(random_matrix(kVocab, 8, 2));
  const Tensor bias = as_tensor(random_matrix(1, kVocab, 3));
  std::vector<std::int32_t> targets(kRows);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    targets[i] = static_cast<std::int32_t>(i * 149);
  }
  for (const Compute compute : {Compute::kFloat32, Compute::kBFloat16}) {
    std::vector<std::vector<float>> first;
    for (const int threads : {1, 2, 3, 7}) {
      Tape tape(Record::kYes, {.count = threads}, {}, compute);
      const Variables v{tape.input(x.view<float, 2>()),
                        tape.input(weight.view<float, 2>()),
                        tape.input(bias.view<float, 2>())};
      cross_entropy(tape, v[0], v[1], v[2], targets, 0.1f);
      tape.backward();
      for (std::size_t i = 0; i < v.size(); ++i) {
        const Tensor gradient = tape.gradient_of(v[i]);
        const auto values = gradient.values<float>();
        if (threads == 1) {
          first.emplace_back(values.begin(), values.end());
          continue;
        }
        EXPECT_EQ(std::memcmp(values.data(), first[i].data(),
                              values.size() * sizeof(float)),
                  0)
            << "input " << i << ", threads " << threads;
      }
    }
  }
}

TEST(CrossEntropy, InBf16IsNearThatInFloat) {
  constexpr std::int64_t kVocab = 500, kRows = 300;
  const Tensor x = as_tensor(random_matrix(kRows, 40, 1));
  const Tensor weight = as_tensor(random_matrix(kVocab, 40, 2));
  std::vector<std::int32_t> targets(kRows);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    targets[i] = static_cast<std::int32_t>(i);
  }
  std::vector<std::vector<float>> results;
  for (const Compute compute : {Compute::kFloat32, Compute::kBFloat16}) {
    Tape tape(Record::kYes, {}, {}, compute);
    const Variable a = tape.input(x.view<float, 2>());
    const Variable b = tape.input(weight.view<float, 2>());
    const CrossEntropySum sum = cross_entropy(tape, a, b, {}, targets, 0.1f);
    tape.backward();
    results.push_back({static_cast<float>(sum.loss)});
    for (const Variable& v : {a, b}) {
      const Tensor gradient = tape.gradient_of(v);
      const auto values = gradient.values<float>();
      results.back().insert(results.back().end(), values.begin(), values.end());
    }
  }
  double error = 0, size = 0;
  EXPECT_NEAR(results[1][0] / results[0][0], 1, 1e-3);
  for (std::size_t i = 1; i < results[0].size(); ++i) {
    error += std::pow(results[1][i] - results[0][i], 2);
    size += std::pow(results[0][i], 2);
  }
  EXPECT_LT(std::sqrt(error / size), 0x1p-5);
  EXPECT_GT(std::sqrt(error / size), 0x1p-12);
}

// Two sentences with sources of their own: a target that is only copied, one
// that is only written, one that stands in the source twice, one that is the
// end.
struct CopyCase {
  std::vector<std::int32_t> targets{4, 0, 12, 3, 3};
  std::vector<std::int32_t> source{4, 9, 4, 1, 12, 2, 12};
  std::vector<std::int64_t> q_offsets{0, 2, 5};
  std::vector<std::int64_t> kv_offsets{0, 3, 7};
  Matrices inputs{random_matrix(5, 6, 1),  random_matrix(13, 6, 2),
                  random_matrix(1, 13, 3), random_matrix(5, 1, 4),
                  random_matrix(5, 4, 5),  random_matrix(7, 4, 6)};

  // x, weight, bias, gate, q and k.
  double definition(const Matrices& m, double smoothing) const {
    const Matrix scores = testing::reference_linear(m[0], m[1], m[2]);
    const Matrix attention = testing::reference_linear(m[4], m[5], {});
    double loss = 0;
    for (std::size_t s = 0; s < 2; ++s) {
      for (std::int64_t r = q_offsets[s]; r < q_offsets[s + 1]; ++r) {
        std::vector<double> copied(13);
        double sum = 0;
        for (std::int64_t k = kv_offsets[s]; k < kv_offsets[s + 1]; ++k) {
          sum += std::exp(attention(r, k) / 2);
        }
        for (std::int64_t k = kv_offsets[s]; k < kv_offsets[s + 1]; ++k) {
          copied[static_cast<std::size_t>(
              source[static_cast<std::size_t>(k)])] +=
              std::exp(attention(r, k) / 2) / sum;
        }
        sum = 0;
        for (std::int64_t w = 0; w < 13; ++w) sum += std::exp(scores(r, w));
        const double g = 1 / (1 + std::exp(-m[3](r, 0)));
        for (std::int64_t w = 0; w < 13; ++w) {
          const double p = g * std::exp(scores(r, w)) / sum +
                           (1 - g) * copied[static_cast<std::size_t>(w)];
          const bool right = w == targets[static_cast<std::size_t>(r)];
          loss -= (smoothing / 13 + (right ? 1 - smoothing : 0)) * std::log(p);
        }
      }
    }
    return loss;
  }

  CopyAttention copy(const Variables& v) const {
    return {v[3], v[4], v[5], source, q_offsets, kv_offsets};
  }
};

TEST(CrossEntropyWithCopies, IsTheDefinitionAndSoAreItsGradients) {
  const CopyCase c;
  for (const float smoothing : {0.0f, 0.1f}) {
    std::vector<Tensor> tensors;
    for (const Matrix& m : c.inputs) tensors.push_back(as_tensor(m));
    Tape tape;
    Variables v;
    for (const Tensor& t : tensors) v.push_back(tape.input(t.view<float, 2>()));
    const CrossEntropySum sum =
        cross_entropy(tape, v[0], v[1], v[2], c.targets, smoothing, c.copy(v));
    tape.backward();
    EXPECT_NEAR(sum.loss, c.definition(c.inputs, smoothing), 1e-4);
    EXPECT_NEAR(sum.likelihood, c.definition(c.inputs, 0), 1e-4);
    const auto definition = [&](const Matrices& m) {
      Matrix loss(1, 1);
      loss(0, 0) = c.definition(m, smoothing);
      return loss;
    };
    Matrix one(1, 1);
    one(0, 0) = 1;
    for (std::size_t i = 0; i < v.size(); ++i) {
      const Tensor gradient = tape.gradient_of(v[i]);
      expect_near(gradient.values<float>().data(),
                  differences(definition, c.inputs, one, i),
                  "gradient of input " + std::to_string(i) + ", element");
    }
  }
}

TEST(CrossEntropyWithCopies, IsFiniteWhereTheGateIsShutOrOpen) {
  const CopyCase c;
  for (const float gate : {-1e4f, 1e4f}) {
    std::vector<Tensor> tensors;
    for (const Matrix& m : c.inputs) tensors.push_back(as_tensor(m));
    for (float& value : tensors[3].values<float>()) value = gate;
    Tape tape;
    Variables v;
    for (const Tensor& t : tensors) v.push_back(tape.input(t.view<float, 2>()));
    const CrossEntropySum sum =
        cross_entropy(tape, v[0], v[1], v[2], c.targets, 0, c.copy(v));
    tape.backward();
    EXPECT_TRUE(std::isfinite(sum.loss)) << gate;
    for (const Variable& input : v) {
      const Tensor gradient = tape.gradient_of(input);
      for (const float value : gradient.values<float>()) {
        ASSERT_TRUE(std::isfinite(value)) << gate;
      }
    }
  }
}

TEST(CrossEntropyWithCopies, RefusesWhatDoesNotFit) {
  using ::testing::HasSubstr;
  const CopyCase c;
  std::vector<Tensor> tensors;
  for (const Matrix& m : c.inputs) tensors.push_back(as_tensor(m));
  Tape tape;
  Variables v;
  for (const Tensor& t : tensors) v.push_back(tape.input(t.view<float, 2>()));
  const auto refused = [&](const CopyAttention& copy) {
    return refusal(
        [&] { cross_entropy(tape, v[0], v[1], v[2], c.targets, 0, copy); });
  };
  CopyAttention copy = c.copy(v);
  copy.gate = v[4];
  EXPECT_THAT(refused(copy),
              HasSubstr("copy.q and copy.gate must be [5, d] "
                        "and [5, 1]; they are [5, 4] and [5, 4]"));
  copy = c.copy(v);
  copy.k = v[1];
  EXPECT_THAT(refused(copy), HasSubstr("copy.k must be [7, 4]; it is [13, 6]"));
  copy = c.copy(v);
  const std::vector<std::int64_t> one{0, 5}, holes{0, 0, 7};
  copy.q_offsets = one;
  EXPECT_THAT(refused(copy),
              HasSubstr("as many sources as sentences; there are 2 and 1"));
  copy = c.copy(v);
  copy.kv_offsets = holes;
  EXPECT_THAT(refused(copy),
              HasSubstr("a source must have a token; source 0 has 0"));
  copy = c.copy(v);
  const std::vector<std::int32_t> far{4, 9, 4, 1, 13, 2, 12};
  copy.source = far;
  EXPECT_THAT(refused(copy), HasSubstr("must lie in 0 .. 12; got 13"));
}

TEST(SampledBinaryCrossEntropy, IsTheDefinitionAndSoAreItsGradients) {
  const std::vector<std::int32_t> targets{4, 0, 10, 3, 3};
  // Two for each row; a target of one row is a negative of another.
  const std::vector<std::int32_t> negatives{1, 2, 4, 4, 0, 9, 5, 6, 7, 10};
  const Matrix x = random_matrix(5, 19, 1);
  const Matrix weight = random_matrix(11, 19, 2);
  const auto definition = [&](const Matrices& m) {
    const Matrix scores = testing::reference_linear(m[0], m[1], {});
    const auto minus_log_sigmoid = [](double z) {
      return std::log(1 + std::exp(-z));
    };
    Matrix loss(1, 1);
    for (std::int64_t r = 0; r < 5; ++r) {
      const auto i = static_cast<std::size_t>(r);
      loss(0, 0) += minus_log_sigmoid(scores(r, targets[i]));
      loss(0, 0) += minus_log_sigmoid(-scores(r, negatives[2 * i]));
      loss(0, 0) += minus_log_sigmoid(-scores(r, negatives[2 * i + 1]));
    }
    return loss;
  };
  const Tensor xs = as_tensor(x), weights = as_tensor(weight);
  Tape tape;
  const Variables v{tape.input(xs.view<float, 2>()),
                    tape.input(weights.view<float, 2>())};
  const double loss =
      sampled_binary_cross_entropy(tape, v[0], v[1], targets, negatives);
  tape.backward();
  const Matrices inputs{x, weight};
  EXPECT_NEAR(loss, definition(inputs)(0, 0), 1e-4);
  Matrix one(1, 1);
  one(0, 0) = 1;
  for (std::size_t i = 0; i < 2; ++i) {
    const Tensor gradient = tape.gradient_of(v[i]);
    expect_near(gradient.values<float>().data(),
                differences(definition, inputs, one, i), "gradient");
  }
}

TEST(SampledBinaryCrossEntropy, IsFiniteForScoresOfAnySize) {
  Tensor far({1, 1}), item({1, 1});
  far.values<float>()[0] = 1e30f;
  item.values<float>()[0] = 1.0f;
  const std::vector<std::int32_t> zero{0};
  Tape tape;
  // The target is sure, its negative (the same) as wrong as can be.
  EXPECT_DOUBLE_EQ(sampled_binary_cross_entropy(
                       tape, tape.input(far.view<float, 2>()),
                       tape.input(item.view<float, 2>()), zero, zero),
                   static_cast<double>(1e30f));
}

TEST(SampledBinaryCrossEntropy, RefusesWhatDoesNotFit) {
  using ::testing::HasSubstr;
  const Tensor rows({2, 4}), items({3, 4}), other({3, 5});
  Tape tape;
  const Variable x = tape.input(rows.view<float, 2>());
  const Variable w = tape.input(items.view<float, 2>());
  const std::vector<std::int32_t> two{0, 1}, three{0, 1, 2}, far{0, 3};
  EXPECT_THAT(refusal([&] {
                sampled_binary_cross_entropy(
                    tape, x, tape.input(other.view<float, 2>()), two, two);
              }),
              HasSubstr("weight must be [vocab, in] with the columns of x; it "
                        "is [3, 5], x is [2, 4]"));
  EXPECT_THAT(
      refusal([&] { sampled_binary_cross_entropy(tape, x, w, three, {}); }),
      HasSubstr("there must be one target a row; x has 2 rows, targets are 3"));
  EXPECT_THAT(
      refusal([&] { sampled_binary_cross_entropy(tape, x, w, two, three); }),
      HasSubstr("there must be as many negatives for each of the 2 rows; there "
                "are 3"));
  EXPECT_THAT(
      refusal([&] { sampled_binary_cross_entropy(tape, x, w, two, far); }),
      HasSubstr("a target or negative must lie in 0 .. 2; got 3"));
}

}  // namespace
}  // namespace regard::autograd
