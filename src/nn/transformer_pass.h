// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "regard/nn/layers.h"
#include "regard/nn/rotary.h"
#include "regard/nn/trainable.h"
#include "regard/nn/transformer.h"

// The parts of a Transformer's forward pass.
namespace regard::nn::detail {

inline std::string source_embedding_name(const TransformerConfig& c) {
  return c.shared_embeddings ? "embedding" : "source_embedding";
}
inline std::string target_embedding_name(const TransformerConfig& c) {
  return c.shared_embeddings ? "embedding" : "target_embedding";
}
// Of the output's weight [target_vocab, model_dim].
inline std::string output_name(const TransformerConfig& c) {
  return (c.tied_output ? target_embedding_name(c) : "output") + ".weight";
}
inline TransformerEncoderLayer encoder_layer(const TransformerConfig& c,
                                             std::int64_t i) {
  return {"encoder.layers." + std::to_string(i), c.layer()};
}
inline TransformerDecoderLayer decoder_layer(const TransformerConfig& c,
                                             std::int64_t i) {
  return {"decoder.layers." + std::to_string(i), c.layer()};
}
inline NormLayer final_norm(const TransformerConfig& c,
                            const std::string& name) {
  return {name, c.norm, c.model_dim, c.norm_epsilon};
}

ParameterSpecs transformer_specs(const TransformerConfig& config);

// Throws InvalidArgument for tokens or offsets that do not fit.
void check_source(const TransformerConfig& c, const PackedTokens& source,
                  const char* where);

// What depends on places alone, kept between calls and made longer when a
// sentence is longer than all before.
class PositionTables {
 public:
  void reserve(const TransformerConfig& c, const PackedTokens& packed);
  // [places, model_dim]
  TensorView<const float, 2> sinusoidal(const TransformerConfig& c,
                                        const PackedTokens& packed);
  TensorView<const float, 2> sinusoidal(const TransformerConfig& c,
                                        std::int64_t places);
  Sentences sentences(const TransformerConfig& c, const PackedTokens& packed);
  // cos and sin for so many places, if the model has rotary positions.
  Sentences rotary(const TransformerConfig& c, std::int64_t places);
  // Makes both for so many places.
  void reserve(const TransformerConfig& c, std::int64_t places);

 private:
  Tensor sinusoidal_;
  RotaryTable rotary_;
};

Variable encode(Pass& pass, const TransformerConfig& c, PositionTables& tables,
                const PackedTokens& source);
// What the output's weight is multiplied with: [target tokens, model_dim].
Variable decode(Pass& pass, const TransformerConfig& c, PositionTables& tables,
                const PackedTokens& target, const Variable& memory,
                const Sentences& memory_sentences);

}  // namespace regard::nn::detail
