// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "regard/core/threads.h"
#include "regard/nn/batch.h"
#include "regard/nn/layers.h"
#include "regard/nn/rotary.h"
#include "regard/tensor/tensor.h"

namespace regard::nn {

// Position encoding, counted from 0 at the start of its sentence.
enum class Positions {
  kSinusoidal,  // added: sin and cos of the place / 10000^(2i / model_dim)
  kLearned,     // added: a row of a table of max_length
  kRotary,      // queries and keys of self attention rotate with the place
  kNone,
};

struct TransformerConfig {
  // Must be given. 0: sources are rows that come from elsewhere, such as
  // pictures, with what tells their places in them; then positions are not
  // rotary, and class Transformer has no use for it.
  std::int64_t source_vocab = 0;
  std::int64_t target_vocab = 0;  // must be given
  std::int64_t model_dim = 512;
  std::int64_t heads = 8;
  std::int64_t encoder_layers = 6;
  std::int64_t decoder_layers = 6;
  std::int64_t feed_forward_dim = 2048;
  Activation activation = Activation::kRelu;
  Norm norm = Norm::kLayerNorm;
  float norm_epsilon = 1e-5f;
  bool norm_first = false;  // norms before each block (pre-norm) or after it
  bool final_norm = true;   // one more after the last layer, as PyTorch has it
  Positions positions = Positions::kSinusoidal;
  std::int64_t max_length = 1024;  // of a sentence, for learned positions
  bool shared_embeddings = false;  // one table for both sides; equal vocabs
  bool tied_output = false;        // the target table is the output's weight
  bool output_bias = false;        // one number for each target token
  float embedding_scale = 0.0f;    // of both tables; 0 means sqrt(model_dim)
  // A token is written or copied from the source (autograd::CopyAttention), by
  // one more head, as wide as the model, from what the decoder has made to what
  // the encoder has: copy.query, copy.key, copy.gate. One vocabulary.
  bool copy = false;
  // All in [0, 1).
  float dropout = 0.0f;  // of embeddings, and of each block before it is added
  float attention_dropout = 0.0f;   // of the attention weights
  float activation_dropout = 0.0f;  // inside the feed-forward block
  float label_smoothing = 0.0f;     // of the loss
  // What models of others have: for TransformerDecoder, not for training.
  std::int64_t head_dim = 0;     // 0 means model_dim / heads
  float attention_scale = 0.0f;  // of all scores; 0 means 1 / sqrt(head_dim)
  bool linear_bias = true;       // of the linear layers but the output
  bool embedding_norm = false;   // one more after embeddings and positions
  // Relative positions as T5 has them: a learned number for each bucket of
  // distances and head, added to the scores of self attention. 0: none.
  std::int64_t relative_buckets = 0;
  std::int64_t relative_max_distance = 128;

  std::int64_t dim_of_head() const {
    return head_dim > 0 ? head_dim : model_dim / heads;
  }
  LayerConfig layer() const {
    return {model_dim,         heads,   feed_forward_dim,
            activation,        norm,    norm_epsilon,
            norm_first,        dropout, attention_dropout,
            activation_dropout};
  }
};

// What depends on places alone: made once for so many places.
class PositionTables {
 public:
  PositionTables(const TransformerConfig& config, std::int64_t places);

  std::int64_t places() const { return places_; }
  // [places, model_dim]; null where positions are not sinusoidal.
  TensorView<const float, 2> sinusoidal() const;
  // Null where positions are not rotary.
  const RotaryTable* rotary() const;

 private:
  std::int64_t places_;
  std::optional<Tensor> sinusoidal_;
  std::optional<RotaryTable> rotary_;
};

// The two halves of a Transformer on a tape, for models that are trained with
// something else around them. The parameters are those of class Transformer;
// `tables` has a place for each token of a sentence and outlives the tape.
//
// encode: [source tokens, model_dim], from tokens or, where source_vocab is 0,
// from rows x that stand in the place of embeddings. decode: [target tokens,
// model_dim], which the output's weight is multiplied with.
Variable encode(Pass& pass, const TransformerConfig& config,
                const PositionTables& tables, const PackedTokens& source,
                const Mask& mask = {});
Variable encode_rows(Pass& pass, const TransformerConfig& config,
                     const PositionTables& tables, const Variable& x,
                     std::span<const std::int64_t> offsets,
                     const Mask& mask = {});
// memory_sentences: where each source begins in the memory, and which tokens
// of the target look at it: those of several sentences may share one.
Variable decode(Pass& pass, const TransformerConfig& config,
                const PositionTables& tables, const PackedTokens& target,
                const Variable& memory, const Sentences& memory_sentences,
                const DecoderMasks& masks = {});

// The parameters of class Transformer, below; without a table of sources where
// source_vocab is 0. Throws InvalidArgument for a config that makes no sense.
ParameterSpecs transformer_parameters(const TransformerConfig& config);

// The encoder and decoder of "Attention Is All You Need", from tokens to the
// scores of the next token. Parameters have the names of torch.nn.Transformer,
// and around it:
//
//   encoder.layers.0.self_attn.in_proj_weight, .linear1.weight,
//   .norm1.weight... decoder.layers.0.multihead_attn.in_proj_weight...
//   encoder.norm.weight, decoder.norm.weight      if final_norm
//   embedding.weight [vocab, model_dim]           if shared_embeddings, else
//   source_embedding.weight, target_embedding.weight
//   source_positions.weight, target_positions.weight  if learned
//   output.weight [target_vocab, model_dim]       if not tied_output
//   output.bias [target_vocab]                    if output_bias
//   encoder.embedding_norm.weight, decoder...     if embedding_norm
//   encoder.relative_bias, decoder.relative_bias [buckets, heads]  if relative
//
// The loss is the cross entropy
// of the next token with label smoothing as PyTorch defines it: the target's
// share is 1 - s + s / vocab, each other token's s / vocab.
class Transformer {
 public:
  // Random parameters: weights Xavier-uniform, embeddings normal with variance
  // 1 / model_dim, biases 0, norms 1. Throws InvalidArgument for a config that
  // makes no sense.
  Transformer(const TransformerConfig& config, std::uint64_t seed);
  // Parameters from elsewhere. Throws InvalidArgument if one is missing, has
  // another shape or type than float32, or is not one of the model's.
  Transformer(const TransformerConfig& config, StateDict parameters);
  ~Transformer();
  Transformer(Transformer&&) noexcept;
  Transformer& operator=(Transformer&&) noexcept;

  const TransformerConfig& config() const { return config_; }
  const StateDict& parameters() const { return parameters_; }
  StateDict& parameters() { return parameters_; }

  // How many threads a call may use. The bits do not depend on it.
  void set_threads(Threads threads);
  // How loss_and_gradients() multiplies (autograd::Tape); loss() stays in
  // float.
  void set_compute(Compute compute);

  // The loss of a training batch, with dropout drawn from `seed`. Adds the
  // gradients of the sum of the losses to `gradients`, which holds a tensor for
  // each parameter, or is empty and then filled. The bits depend on the
  // parameters, the batch and the seed, not on the number of threads. Throws
  // InvalidArgument for a token outside its vocabulary, an empty or overlong
  // sentence, or parts that do not fit together.
  LossSum loss_and_gradients(const TranslationBatch& batch, std::uint64_t seed,
                             StateDict& gradients);
  // The loss alone, without dropout: validation.
  LossSum loss(const TranslationBatch& batch);

 private:
  LossSum run(const TranslationBatch& batch, Mode mode, std::uint64_t seed,
              StateDict* gradients);

  struct Work;  // memory that one call leaves to the next
  TransformerConfig config_;
  StateDict parameters_;
  std::unique_ptr<Work> work_;
};

}  // namespace regard::nn
