// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "nn/decoder_copies.h"
#include "nn/transformer_layer.h"
#include "nn/transformer_pass.h"
#include "regard/nn/decoding.h"

namespace regard::nn {

// A Transformer's weights as inference reads them.
struct TransformerDecoder::Weights {
  Weights(const TransformerConfig& config, const StateDict& parameters,
          ops::WeightStorage storage);
  std::size_t bytes() const;

  TransformerConfig config;
  Tensor own_source_table;  // empty with shared embeddings
  Tensor target_table;      // [vocab, model_dim]
  const Tensor& source_table() const {
    return config.shared_embeddings ? target_table : own_source_table;
  }
  Tensor source_positions, target_positions;  // learned; else empty
  std::vector<detail::TransformerLayerWeights> encoder, decoder;
  std::vector<detail::PackedLinear> memory_kv;  // [decoder layers]
  ops::NormWeights encoder_norm, decoder_norm;  // null: none
  ops::NormWeights source_norm, target_norm;    // of embeddings; null: none
  Tensor encoder_bias, decoder_bias;  // relative, [buckets, heads]; or empty
  detail::PackedLinear output;
  detail::CopyWeights copy;
  // What states leave to the next ones: fresh pages, and sines, cost as much as
  // a short sentence.
  mutable ops::MemoryPool pool;
  mutable detail::SharedPositionTables tables;
};

}  // namespace regard::nn
