// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regard/nn/transformer.h"
#include "regard/tasks/translation_data.h"
#include "regard/train/training.h"

namespace regard::tasks {

// A model that learns to translate from pairs. An example is as long as its
// longer side. Borrows all three.
class TranslationTask : public train::TrainingTask {
 public:
  TranslationTask(nn::Transformer& model, const TranslationData& training,
                  const TranslationData& held_out);

  StateDict& parameters() override { return model_.parameters(); }
  std::span<const std::int64_t> lengths() const override { return lengths_; }
  nn::LossSum loss_and_gradients(std::span<const std::int64_t> examples,
                                 std::uint64_t seed,
                                 StateDict& gradients) override;
  nn::LossSum validate() override;
  bool holds_out() const override { return !held_out_batches_.empty(); }
  void set_compute(Compute compute) override { model_.set_compute(compute); }

 private:
  nn::Transformer& model_;
  const TranslationData& training_;
  const TranslationData& held_out_;
  std::vector<std::int64_t> lengths_;
  std::vector<std::vector<std::int64_t>> held_out_batches_;
};

}  // namespace regard::tasks
