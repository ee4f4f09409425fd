// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "nn/transformer_layer.h"
#include "regard/tasks/language_model.h"
#include "regard/tensor/tensor.h"

namespace regard::tasks {

struct LanguageModel::Weights {
  LanguageModelConfig config;
  Tensor embedding;  // [vocab, model_dim], not packed
  std::vector<nn::detail::TransformerLayerWeights> layers;
  ops::NormWeights output_norm;
  nn::detail::PackedLinear output;
};

}  // namespace regard::tasks
