// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "regard/nn/layers.h"
#include "regard/nn/transformer.h"

// What training and inference of a Transformer share.
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
inline float embedding_scale(const TransformerConfig& c) {
  if (c.embedding_scale != 0) return c.embedding_scale;
  return static_cast<float>(std::sqrt(static_cast<double>(c.model_dim)));
}

// Throws InvalidArgument for tokens or offsets that do not fit.
void check_source(const TransformerConfig& c, const PackedTokens& source,
                  const char* where);

// Throws InvalidArgument for a config that makes no sense, or parameters that
// are not those of a TransformerDecoder of that config.
void check_decoder(const TransformerConfig& c, const StateDict& parameters);

// The tables of a model, made longer when a sentence is longer than all before.
// Who holds the old ones may go on with them.
class SharedPositionTables {
 public:
  std::shared_ptr<const PositionTables> for_places(const TransformerConfig& c,
                                                   std::int64_t places);

 private:
  std::mutex mutex_;
  std::shared_ptr<const PositionTables> tables_;
};

}  // namespace regard::nn::detail
