// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "regard/core/threads.h"
#include "regard/tensor/tensor.h"

namespace regard::train {

struct AdamOptions {
  float beta1 = 0.9f;
  float beta2 = 0.98f;
  float epsilon = 1e-8f;
  float weight_decay = 0.0f;  // decoupled: above 0 this is AdamW
};

// Adam as PyTorch's torch.optim.AdamW computes it, in float:
//
//   m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) g^2
//   p = p - rate weight_decay p
//   p = p - rate / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
class Adam {
 public:
  // Moments of zeros. Throws InvalidArgument for options that make no sense and
  // for parameters that are not float32.
  Adam(const AdamOptions& options, const StateDict& parameters);

  // One step; g is gradients times gradient_scale. Both must have the names and
  // shapes that the constructor saw; throws InvalidArgument otherwise.
  struct Step {
    double rate = 0;
    double gradient_scale = 1;
    Threads threads = {};
  };
  void step(const StateDict& gradients, StateDict& parameters,
            const Step& step);

  // What must be saved to resume later, and how it is restored.
  std::int64_t steps() const { return steps_; }
  const StateDict& first_moments() const { return first_; }
  const StateDict& second_moments() const { return second_; }
  void restore(std::int64_t steps, StateDict first, StateDict second);

 private:
  AdamOptions options_;
  std::int64_t steps_ = 0;
  StateDict first_;
  StateDict second_;
};

// The Euclidean length of all gradients as one vector: sums over fixed
// blocks, added in double and in order, so that threads change no bit.
double gradient_norm(const StateDict& gradients, Threads threads = {});

}  // namespace regard::train
