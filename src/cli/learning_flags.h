// SPDX-License-Identifier: Apache-2.0
// The options that every training has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/options.h"
#include "regard/tensor/tensor.h"
#include "regard/train/training.h"

namespace regard::cli {

// Where a training stands, and how it learns.
struct LearningFlags {
  std::string out;
  bool resume = false;

  // Where only one of them was given, the other's default sets no limit.
  std::int64_t updates = 8000;
  std::int64_t epochs = 0;
  const App* declared_by = nullptr;  // knows what was given
  std::int64_t batch_tokens = 4096;
  std::int64_t accumulate = 1;
  std::string schedule = "inverse-sqrt";
  double rate = 0.005;
  std::int64_t warmup = 2000;
  double beta1 = 0.9;
  double beta2 = 0.98;
  double weight_decay = 0.0;
  double clip = 0.0;
  std::int64_t validate_every = 0;
  std::int64_t patience = 0;
  std::int64_t average = 10;
  double checkpoint_every = 300;
  std::uint64_t seed = 1;
  int threads = 0;
  std::string compute = "float32";
  bool float16 = false;

  DType stored() const { return float16 ? DType::kFloat16 : DType::kFloat32; }
};

// --out and --resume, listed with the data.
void add_folder_flags(App& app, LearningFlags& flags);
// --valid and --valid-share, likewise: one file, or some.
void add_held_out_flags(App& app, std::string& valid, double& share);
void add_held_out_flags(App& app, std::vector<std::string>& valid,
                        double& share);
void add_learning_flags(App& app, LearningFlags& flags);
// Throws UsageError for values that do not go together.
void check(const LearningFlags& flags);
// How many updates a run over examples of these lengths has at most.
std::int64_t update_count(const LearningFlags& flags,
                          std::span<const std::int64_t> lengths);
train::TrainingOptions training_options(const LearningFlags& flags,
                                        std::span<const std::int64_t> lengths);

}  // namespace regard::cli
