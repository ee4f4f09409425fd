// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "nn/transformer_layer.h"
#include "regard/tasks/language_model.h"
#include "regard/tensor/tensor.h"
#include "tasks/parameter_source.h"

namespace regard::tasks {

struct LanguageModel::Weights {
  LanguageModelConfig config;
  Tensor embedding;  // [vocab, model_dim], not packed
  Tensor positions;  // [context, model_dim], where they are learned
  std::vector<nn::detail::TransformerLayerWeights> layers;
  ops::NormWeights output_norm;
  nn::detail::PackedLinear output;
};

// Throws InvalidArgument as LanguageModel's constructor does.
LanguageModel make_language_model(const LanguageModelConfig& config,
                                  const ParameterSource& source,
                                  ops::WeightStorage storage);

}  // namespace regard::tasks
