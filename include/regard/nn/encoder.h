// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "regard/attention/weights.h"
#include "regard/nn/batch.h"
#include "regard/nn/layers.h"
#include "regard/nn/transformer.h"
#include "regard/tensor/tensor.h"

namespace regard::nn {

// How the tokens of a text become one vector.
enum class Pooling {
  kFirst,      // the first token's, as BERT's [CLS]
  kMean,       // the mean of all
  kAttention,  // attention of one learned query to all, with the heads
  kLast,       // the last token's, which under a causal mask has seen all
};

struct EncoderConfig {
  std::int64_t vocab = 0;  // must be given
  std::int64_t model_dim = 128;
  std::int64_t heads = 4;
  std::int64_t layers = 2;
  std::int64_t feed_forward_dim = 256;
  Activation activation = Activation::kGelu;
  Norm norm = Norm::kLayerNorm;
  float norm_epsilon = 1e-5f;
  // Norms before each block, and one after the last layer; or after each block.
  bool norm_first = true;
  // One layer's parameters for all layers.
  bool shared_layers = false;
  Positions positions = Positions::kSinusoidal;
  std::int64_t max_length = 512;  // of a text, in tokens
  Pooling pooling = Pooling::kMean;
  // What BERT and its kin have, so that their weights can be fine-tuned.
  float embedding_scale = 0.0f;  // of the table; 0 means sqrt(model_dim)
  bool token_type = false;       // one learned row more, added to every token
  bool embedding_norm = false;   // one more norm, after all that is added
  // All in [0, 1).
  float dropout = 0.0f;  // of embeddings, blocks, and what is pooled
  float attention_dropout = 0.0f;
  float activation_dropout = 0.0f;

  LayerConfig layer() const {
    return {model_dim,         heads,   feed_forward_dim,
            activation,        norm,    norm_epsilon,
            norm_first,        dropout, attention_dropout,
            activation_dropout};
  }
};

// An encoder on a tape, for models with something behind it. Texts are laid one
// after the other, and what a text becomes depends on no other. Parameters:
//
//   embedding.weight [vocab, model_dim], positions.weight where learned
//   token_type.weight [1, model_dim]                  if token_type
//   embedding_norm.weight, embedding_norm.bias        if embedding_norm
//   layers.0.self_attn.in_proj_weight, .linear1.weight, .norm1.weight, ...
//   norm.weight, norm.bias                            if norm_first
//   pooling.query [1, model_dim], pooling.attn.in_proj_weight, ...
//                                              if pooled by attention
//
// Holds no values, only what depends on the sizes, and must outlive the tapes.
// Any number of threads may use one at a time.
class Encoder {
 public:
  // Throws InvalidArgument for a config that makes no sense.
  explicit Encoder(const EncoderConfig& config);

  const EncoderConfig& config() const { return config_; }
  void declare(ParameterSpecs& specs) const;

  // The parts, in their order, for those who put something between.
  //   positions: for an embedding of another table, whose rows stand where
  //           tokens do; null where layers know the places. Throws as embed().
  //   embed:  [tokens, model_dim]. Throws InvalidArgument for a token outside
  //           the vocabulary, and a text that is empty or too long.
  //   encode: the layers, [tokens, model_dim]
  //   pool:   [texts, model_dim]
  autograd::EmbeddingOptions positions(Pass& pass,
                                       const PackedTokens& texts) const;
  Variable embed(Pass& pass, const PackedTokens& texts) const;
  Variable encode(Pass& pass, Variable x, const PackedTokens& texts,
                  const Mask& mask = {}) const;
  Variable pool(Pass& pass, const Variable& x, const PackedTokens& texts) const;

  // All of them: a vector for each text.
  Variable operator()(Pass& pass, const PackedTokens& texts) const {
    return pool(pass, encode(pass, embed(pass, texts), texts), texts);
  }

  // What every layer looks at in one text, of which x is what embed() gave, and
  // how much of what is pooled comes from each token, which adds up to 1. There
  // is one head where their mean is asked for.
  struct Attention {
    Tensor layers;   // [layers, heads, tokens, tokens]
    Tensor pooling;  // [heads, tokens]

    // Attention rollout (Abnar and Zuidema, 2020): the share of each token in
    // what is pooled, where every layer passes on half by its attention and
    // half as it is.
    std::vector<double> rollout() const;
  };
  Attention attention(Pass& pass, Variable x, const PackedTokens& text,
                      const Mask& mask = {},
                      OverHeads heads = OverHeads::kMean) const;

 private:
  struct Tables;  // made when the first text comes
  TransformerEncoderLayer layer(std::int64_t i) const;
  const PositionTables& tables() const;

  EncoderConfig config_;
  std::shared_ptr<Tables> tables_;
};

}  // namespace regard::nn
