// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "regard/core/random.h"
#include "regard/train/training.h"

namespace regard::testing {

// A linear classifier of points in the plane that learns in microseconds. What
// it draws from the seed moves the inputs a little, in place of dropout.
class SmallTask : public train::TrainingTask {
 public:
  static constexpr int kInputs = 4;
  static constexpr int kClasses = 3;

  explicit SmallTask(int examples = 120, float noise = 0.1f) : noise_(noise) {
    Random random(7);
    Tensor weight(Shape{kClasses, kInputs});
    for (float& value : weight.values<float>()) value = 0.1f * random.normal();
    parameters_.emplace("weight", std::move(weight));
    parameters_.emplace("bias", Tensor(Shape{kClasses}));
    for (int i = 0; i < examples; ++i) {
      Example example;
      for (float& x : example.inputs) x = random.normal();
      example.label = example.inputs[0] > 0.5f   ? 0
                      : example.inputs[1] > 0.0f ? 1
                                                 : 2;
      examples_.push_back(example);
      lengths_.push_back(1 + i % 7);
    }
  }

  StateDict& parameters() override { return parameters_; }
  std::span<const std::int64_t> lengths() const override { return lengths_; }

  nn::LossSum loss_and_gradients(std::span<const std::int64_t> examples,
                                 std::uint64_t seed,
                                 StateDict& gradients) override {
    if (gradients.empty()) {
      for (const auto& [name, tensor] : parameters_) {
        gradients.emplace(name, Tensor(tensor.shape()));
      }
    }
    ++calls;
    nn::LossSum sum;
    Random random(seed);
    for (const std::int64_t i : examples) {
      Example example = examples_[static_cast<std::size_t>(i)];
      for (float& x : example.inputs) x += noise_ * random.normal();
      sum += one(example, &gradients);
    }
    if (poison_at != 0 && calls == poison_at) sum.loss = std::nan("");
    return sum;
  }

  nn::LossSum validate() override {
    nn::LossSum sum;
    for (const Example& example : examples_) sum += one(example, nullptr);
    if (getting_worse) sum.likelihood = 1000.0 + static_cast<double>(calls);
    return held_out ? sum : nn::LossSum{};
  }

  bool holds_out() const override { return held_out; }

  std::int64_t calls = 0;
  std::int64_t poison_at = 0;
  bool getting_worse = false;
  bool held_out = true;

 private:
  struct Example {
    float inputs[kInputs];
    int label;
  };

  nn::LossSum one(const Example& example, StateDict* gradients) {
    const auto weight = parameters_.at("weight").view<float, 2>();
    const auto bias = parameters_.at("bias").view<float, 1>();
    double scores[kClasses];
    double total = 0;
    for (int c = 0; c < kClasses; ++c) {
      double score = bias(c);
      for (int k = 0; k < kInputs; ++k) {
        score += static_cast<double>(weight(c, k)) * example.inputs[k];
      }
      total += scores[c] = std::exp(score);
    }
    for (int c = 0; gradients != nullptr && c < kClasses; ++c) {
      const auto d =
          static_cast<float>(scores[c] / total - (c == example.label ? 1 : 0));
      gradients->at("bias").view<float, 1>()(c) += d;
      for (int k = 0; k < kInputs; ++k) {
        gradients->at("weight").view<float, 2>()(c, k) += d * example.inputs[k];
      }
    }
    nn::LossSum sum;
    sum.loss = sum.likelihood = -std::log(scores[example.label] / total);
    sum.tokens = 1;
    return sum;
  }

  float noise_;
  StateDict parameters_;
  std::vector<Example> examples_;
  std::vector<std::int64_t> lengths_;
};

inline std::vector<float> flat(const StateDict& state) {
  std::vector<float> all;
  for (const auto& [name, tensor] : state) {
    const auto values = tensor.values<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace regard::testing
