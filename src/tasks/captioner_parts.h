// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "regard/nn/transformer.h"
#include "regard/tasks/captioner.h"

namespace regard::tasks {

// The Transformer whose sources are the places of pictures.
nn::TransformerConfig transformer_of(const CaptionerConfig& config);

// What stands before it: the features of a place become a row as wide as the
// model, and what tells the place is added.
struct PictureEmbedding {
  const CaptionerConfig& config;

  void declare(nn::ParameterSpecs& specs) const;
  // features [pictures * places, width]
  nn::Variable operator()(nn::Pass& pass, const nn::Variable& features) const;
};

// Throws InvalidArgument for a config that makes no sense.
nn::ParameterSpecs captioner_specs(const CaptionerConfig& config);

}  // namespace regard::tasks
