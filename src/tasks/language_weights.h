// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "regard/tasks/language_model.h"
#include "regard/tensor/tensor.h"

namespace regard::tasks {

// Matrices are packed for nn::detail::multiply; norms are as they are.
struct LanguageModel::Weights {
  struct Layer {
    Tensor attn_norm, q, k, v, attn_output;
    Tensor ffn_norm, gate, up, down;
  };

  LanguageModelConfig config;
  Tensor embedding;  // [vocab, model_dim], not packed
  std::vector<Layer> layers;
  Tensor output_norm;
  Tensor output;
};

}  // namespace regard::tasks
