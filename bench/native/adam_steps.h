// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/adam.h"
#include "regard/tensor/tensor.h"

namespace regard::bench {

// Gradients and moments of a model that is trained, from step to step.
class AdamSteps {
 public:
  explicit AdamSteps(const StateDict& parameters) {
    for (const auto& [name, tensor] : parameters) {
      gradients[name] = Tensor(tensor.shape());
      first_[name] = Tensor(tensor.shape());
      second_[name] = Tensor(tensor.shape());
    }
  }

  // Sets the gradients to zero; the number of the step, from 1 on.
  std::uint64_t begin() {
    for (auto& [name, gradient] : gradients) {
      const auto values = gradient.values<float>();
      std::fill(values.begin(), values.end(), 0.0f);
    }
    return ++steps_;
  }

  // With the gradients of a sum over `count` tokens or examples.
  void finish(StateDict& parameters, std::int64_t count) {
    const auto number = static_cast<double>(steps_);
    kernels::AdamStep adam;
    adam.beta2 = 0.98f;
    adam.step_size = static_cast<float>(1e-4 / (1 - std::pow(0.9, number)));
    adam.root_scale =
        static_cast<float>(1 / std::sqrt(1 - std::pow(0.98, number)));
    adam.gradient_scale = 1.0f / static_cast<float>(count);
    for (auto& [name, tensor] : parameters) {
      kernels::adam_step(adam, gradients[name].values<float>().data(),
                         tensor.size(), tensor.values<float>().data(),
                         first_[name].values<float>().data(),
                         second_[name].values<float>().data());
    }
  }

  std::uint64_t steps() const { return steps_; }
  StateDict gradients;

 private:
  StateDict first_, second_;
  std::uint64_t steps_ = 0;
};

}  // namespace regard::bench
