// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "regard/core/threads.h"
#include "regard/nn/batch.h"
#include "regard/nn/layers.h"
#include "regard/nn/parameters.h"
#include "regard/tensor/tensor.h"
#include "regard/train/training.h"

namespace regard::tasks {

// Which examples a number counts.
enum class Part { kTraining, kHeldOut };

// What a task must say to be trained.
struct ExampleTaskParts {
  nn::ParameterSpecs parameters;
  std::vector<std::int64_t> lengths;           // of the training examples
  std::vector<std::int64_t> held_out_lengths;  // of the others
  // The loss of some examples, on the tape of the pass. `seed` is for what the
  // task itself draws, in training.
  std::function<nn::LossSum(nn::Pass& pass, Part part,
                            std::span<const std::int64_t> examples,
                            std::uint64_t seed)>
      loss;
};

// A task of examples that have nothing to do with each other: the tape, the
// gradients and the batches of validation, the same for every model.
class ExampleTask : public train::TrainingTask {
 public:
  // Random parameters.
  ExampleTask(ExampleTaskParts parts, std::uint64_t seed, Threads threads = {});

  // Values of some parameters from elsewhere, such as a pretrained encoder's.
  // Throws InvalidArgument for one that is not the task's, or not so shaped.
  void begin_with(StateDict values);

  StateDict& parameters() override { return parameters_; }
  std::span<const std::int64_t> lengths() const override {
    return parts_.lengths;
  }
  nn::LossSum loss_and_gradients(std::span<const std::int64_t> examples,
                                 std::uint64_t seed,
                                 StateDict& gradients) override;
  nn::LossSum validate() override;
  bool holds_out() const override { return !held_out_batches_.empty(); }
  void set_compute(Compute compute) override { compute_ = compute; }

 private:
  ExampleTaskParts parts_;
  StateDict parameters_;
  Threads threads_;
  Compute compute_ = Compute::kFloat32;
  autograd::MemoryPool pool_;
  std::vector<std::vector<std::int64_t>> held_out_batches_;
};

// Numbers of examples: which to learn from, and which to hold out. An example
// is held out by a hash of the seed and its key, such as its text: those with
// one key fall on one side, whatever their order.
struct Split {
  std::vector<std::int64_t> training, held_out;
};
Split split_examples(std::span<const std::string> keys, double share,
                     std::uint64_t seed);

// The texts of some examples, one after the other.
nn::PackedTokens pack(std::span<const std::vector<std::int32_t>> texts,
                      std::span<const std::int64_t> examples);

// Reads a share of the tokens as text::kUnknown, as rare words are; never
// text::kBegin.
void drop_tokens(nn::PackedTokens& packed, float rate, std::uint64_t seed);

std::vector<std::int64_t> lengths_of(
    std::span<const std::vector<std::int32_t>> texts);

// For the settings of a training: how many, and a hash of them.
std::string summary_of(std::span<const std::vector<std::int32_t>> texts,
                       std::span<const std::int32_t> targets);
std::string summary_of(const nn::PackedTokens& texts);

}  // namespace regard::tasks
