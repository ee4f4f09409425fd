// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "nn/transformer_layer.h"
#include "nn/transformer_pass.h"
#include "regard/nn/decoding.h"

namespace regard::nn {

// A Transformer's weights as inference reads them.
struct TransformerDecoder::Weights {
  explicit Weights(const Transformer& model);

  TransformerConfig config;
  Tensor source_table, target_table;          // [vocab, model_dim]
  Tensor source_positions, target_positions;  // learned; else empty
  std::vector<detail::TransformerLayerWeights> encoder, decoder;
  std::vector<detail::PackedLinear> memory_kv;  // [decoder layers]
  ops::NormWeights encoder_norm, decoder_norm;  // null: none
  detail::PackedLinear output;
  // What states leave to the next ones: fresh pages, and sines, cost as much as
  // a short sentence.
  mutable ops::MemoryPool pool;
  mutable detail::SharedPositionTables tables;
};

}  // namespace regard::nn
