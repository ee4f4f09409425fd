// SPDX-License-Identifier: Apache-2.0
// Schedules, batches and Adam, each by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "regard/core/error.h"
#include "regard/core/random.h"
#include "regard/train/adam.h"
#include "regard/train/batches.h"
#include "regard/train/schedule.h"

namespace regard::train {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Schedule, RisesInAStraightLineToThePeak) {
  Schedule schedule;
  schedule.peak = 0.005;
  schedule.start = 1e-7;
  schedule.warmup = 2000;
  EXPECT_NEAR(schedule.rate(1), 1e-7 + (0.005 - 1e-7) / 2000, 1e-15);
  EXPECT_NEAR(schedule.rate(1000), (0.005 + 1e-7) / 2, 1e-12);
  EXPECT_DOUBLE_EQ(schedule.rate(2000), 0.005);
}

TEST(Schedule, FallsWithTheInverseSquareRoot) {
  Schedule schedule;
  schedule.peak = 0.005;
  schedule.warmup = 2000;
  EXPECT_NEAR(schedule.rate(8000), 0.0025, 1e-12);
}

TEST(Schedule, FallsAlongHalfACosine) {
  Schedule schedule;
  schedule.kind = ScheduleKind::kCosine;
  schedule.peak = 1;
  schedule.floor = 0.2;
  schedule.warmup = 100;
  schedule.total = 300;
  EXPECT_DOUBLE_EQ(schedule.rate(100), 1);
  EXPECT_NEAR(schedule.rate(200), 0.6, 1e-12);
  EXPECT_NEAR(schedule.rate(150), 0.2 + 0.4 * (1 + std::sqrt(0.5)), 1e-12);
  EXPECT_NEAR(schedule.rate(300), 0.2, 1e-12);
  EXPECT_NEAR(schedule.rate(900), 0.2, 1e-12);
}

TEST(Schedule, FallsAlongALine) {
  Schedule schedule;
  schedule.kind = ScheduleKind::kLinear;
  schedule.peak = 1;
  schedule.floor = 0.2;
  schedule.warmup = 100;
  schedule.total = 300;
  EXPECT_DOUBLE_EQ(schedule.rate(100), 1);
  EXPECT_NEAR(schedule.rate(150), 0.8, 1e-12);
  EXPECT_NEAR(schedule.rate(300), 0.2, 1e-12);
  EXPECT_NEAR(schedule.rate(900), 0.2, 1e-12);
  schedule.total = 100;
  EXPECT_THAT([&] { schedule.check(); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "Schedule: a line must end after its warm-up of 100 updates; "
                  "it ends at 100")));
}

TEST(Schedule, RefusesACosineThatEndsWithinItsWarmup) {
  Schedule schedule;
  schedule.kind = ScheduleKind::kCosine;
  schedule.warmup = 100;
  schedule.total = 100;
  EXPECT_THAT([&] { schedule.check(); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("a cosine must end after its warm-up of 100")));
}

TEST(Schedule, RefusesARateThatIsNotPositive) {
  Schedule schedule;
  schedule.peak = 0;
  EXPECT_THAT([&] { schedule.check(); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("the learning rate must be positive; got 0")));
}

std::vector<std::int64_t> some_lengths(std::size_t count) {
  Random random(3);
  std::vector<std::int64_t> lengths(count);
  for (auto& length : lengths) length = 1 + random.below(40);
  return lengths;
}

TEST(Batches, HoldEveryExampleOnceWithinTheBudget) {
  const auto lengths = some_lengths(1000);
  const auto batches = make_batches(lengths, {.tokens = 200, .pool = 5}, 0);
  std::set<std::int64_t> seen;
  for (const auto& batch : batches) {
    std::int64_t tokens = 0;
    for (const std::int64_t example : batch) {
      EXPECT_TRUE(seen.insert(example).second);
      tokens += lengths[static_cast<std::size_t>(example)];
    }
    EXPECT_LE(tokens, 200);
    EXPECT_FALSE(batch.empty());
  }
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(Batches, PutLikeLengthsTogether) {
  const auto lengths = some_lengths(2000);
  double spread = 0;
  const auto batches = make_batches(lengths, {.tokens = 200, .pool = 30}, 0);
  for (const auto& batch : batches) {
    std::int64_t least = 1000;
    std::int64_t most = 0;
    for (const std::int64_t example : batch) {
      least = std::min(least, lengths[static_cast<std::size_t>(example)]);
      most = std::max(most, lengths[static_cast<std::size_t>(example)]);
    }
    spread += static_cast<double>(most - least);
  }
  EXPECT_LT(spread / static_cast<double>(batches.size()), 4);
}

TEST(Batches, AreTheSameForASeedAndAnEpochAndOthersForOthers) {
  const auto lengths = some_lengths(300);
  const BatchOptions options{.tokens = 100, .seed = 5};
  EXPECT_EQ(make_batches(lengths, options, 3),
            make_batches(lengths, options, 3));
  EXPECT_NE(make_batches(lengths, options, 3),
            make_batches(lengths, options, 4));
  EXPECT_NE(make_batches(lengths, options, 3),
            make_batches(lengths, {.tokens = 100, .seed = 6}, 3));
}

TEST(Batches, GiveAnOverlongExampleABatchOfItsOwn) {
  const std::vector<std::int64_t> lengths = {3, 500, 4};
  const auto batches = make_batches(lengths, {.tokens = 10}, 0);
  EXPECT_EQ(batches.size(), 2u);
  EXPECT_THAT(batches, ::testing::Contains(std::vector<std::int64_t>{1}));
}

TEST(Batches, AreOneWhereTheBudgetHasNoEnd) {
  const auto batches =
      make_batches(some_lengths(30),
                   {.tokens = std::numeric_limits<std::int64_t>::max()}, 0);
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(batches[0].size(), 30u);
}

TEST(Batches, RefuseABudgetOfNothing) {
  EXPECT_THAT([] { make_batches(some_lengths(3), {.tokens = 0}, 0); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("tokens and pool must be positive; got 0 and 64")));
}

// The definition, in double.
struct PlainAdam {
  double beta1, beta2, epsilon, decay;
  double m = 0, v = 0, p = 0;
  int t = 0;
  void step(double g, double rate) {
    ++t;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    p -= rate * decay * p;
    const double first = m / (1 - std::pow(beta1, t));
    const double second = v / (1 - std::pow(beta2, t));
    p -= rate * first / (std::sqrt(second) + epsilon);
  }
};

TEST(Adam, FollowsTheDefinitionStepByStep) {
  for (const float decay : {0.0f, 0.1f}) {
    constexpr int kSize = 37;
    Random random(11);
    StateDict parameters;
    parameters.emplace("p", Tensor(Shape{kSize}));
    std::vector<PlainAdam> plain;
    for (float& value : parameters.at("p").values<float>()) {
      value = random.normal();
      plain.push_back({0.9f, 0.98f, 1e-8f, decay, 0, 0, value});
    }
    Adam adam({.weight_decay = decay}, parameters);
    StateDict gradients;
    gradients.emplace("p", Tensor(Shape{kSize}));
    for (int t = 0; t < 20; ++t) {
      const auto g = gradients.at("p").values<float>();
      for (std::size_t i = 0; i < kSize; ++i) {
        g[i] = random.normal();
        plain[i].step(0.5 * g[i], 0.01);
      }
      adam.step(gradients, parameters, {.rate = 0.01, .gradient_scale = 0.5});
    }
    const auto values = parameters.at("p").values<float>();
    for (std::size_t i = 0; i < kSize; ++i) {
      EXPECT_NEAR(values[i], plain[i].p, 3e-6) << i;
    }
  }
}

TEST(Adam, DoesNotDependOnTheThreads) {
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 5}) {
    Random random(1);
    StateDict parameters;
    parameters.emplace("p", Tensor(Shape{100001}));
    StateDict gradients = parameters;
    for (float& g : gradients.at("p").values<float>()) g = random.normal();
    Adam adam({}, parameters);
    adam.step(gradients, parameters,
              {.rate = 0.01, .threads = {.count = threads}});
    const auto values = parameters.at("p").values<float>();
    results.emplace_back(values.begin(), values.end());
    results.back().push_back(
        static_cast<float>(gradient_norm(gradients, {.count = threads})));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(Adam, MeasuresTheNormOverAllGradients) {
  StateDict gradients;
  gradients.emplace("a", Tensor({3.0f, 0.0f}, {2}));
  gradients.emplace("b", Tensor({4.0f, 12.0f}, {2}));
  EXPECT_DOUBLE_EQ(gradient_norm(gradients), 13.0);
}

TEST(Adam, RefusesGradientsOfAnotherModel) {
  StateDict parameters;
  parameters.emplace("p", Tensor(Shape{2}));
  Adam adam({}, parameters);
  StateDict gradients;
  gradients.emplace("q", Tensor(Shape{2}));
  EXPECT_THAT(
      [&] { adam.step(gradients, parameters, {}); },
      ThrowsMessage<InvalidArgument>(HasSubstr("the gradients have no p")));
  gradients.clear();
  gradients.emplace("p", Tensor(Shape{3}));
  EXPECT_THAT([&] { adam.step(gradients, parameters, {}); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "the gradients of p must be float32 [2]; got float32 [3]")));
}

TEST(Adam, RefusesBetasOutsideOfZeroToOne) {
  EXPECT_THAT([] { Adam({.beta1 = 1.0f}, {}); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("beta1 and beta2 must be in [0, 1); got 1")));
}

}  // namespace
}  // namespace regard::train
