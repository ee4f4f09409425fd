// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "regard/core/threads.h"
#include "regard/nn/batch.h"
#include "regard/nn/transformer.h"
#include "regard/ops/weight_storage.h"
#include "regard/tensor/tensor.h"
#include "regard/tensor/tensor_view.h"

namespace regard::nn {

class DecoderState;

// In the place of a token: a hypothesis reads zeros, as decoders of Marian do
// where a sentence begins.
inline constexpr std::int32_t kZeroEmbedding =
    std::numeric_limits<std::int32_t>::min();

// The queries and keys that weights were made of: softmax over the visible keys
// of q k^T / sqrt(head_dim).
struct HeadVectors {
  Tensor q;  // [layers, heads, queries, head_dim]
  Tensor k;  // [layers, heads, keys, head_dim]
};

// What every head gave weight to while a model read a source and wrote a
// target. A hidden pair has weight 0.
struct AttentionTrace {
  Tensor encoder;  // [encoder_layers, heads, source, source]
  Tensor decoder;  // [decoder_layers, heads, target, target], causal
  Tensor cross;    // [decoder_layers, heads, target, source]
  HeadVectors encoder_vectors;
  HeadVectors decoder_vectors;
  HeadVectors cross_vectors;
};

// Sources of a model whose source_vocab is 0: rows in the place of embeddings.
// Source s owns rows [offsets[s], offsets[s + 1]), of which there is one or
// more.
struct SourceRows {
  TensorView<const float, 2> rows;  // [all, model_dim]
  std::span<const std::int64_t> offsets;
};

// A Transformer made ready to write sentences token by token: a copy of its
// weights in the order that the products read them. Never changes; all calls on
// it may run at the same time.
class TransformerDecoder {
 public:
  // Weights of products become what `weights` says; tables of embeddings, norms
  // and biases stay float32. There are no stored integers here: kAsStored is
  // kFloat32.
  explicit TransformerDecoder(
      const Transformer& model,
      ops::WeightStorage weights = ops::WeightStorage::kFloat32);
  // Of all that a config can say. Throws InvalidArgument if a parameter is
  // missing, has another shape or type than float32, or is not one of those.
  TransformerDecoder(const TransformerConfig& config,
                     const StateDict& parameters,
                     ops::WeightStorage weights = ops::WeightStorage::kFloat32);
  ~TransformerDecoder();
  TransformerDecoder(TransformerDecoder&&) noexcept;
  TransformerDecoder& operator=(TransformerDecoder&&) noexcept;

  const TransformerConfig& config() const;
  // Of all weights, in memory.
  std::size_t weight_bytes() const;

  // What the encoder makes of the sources: [source tokens, model_dim]. The bits
  // of a sentence depend on no other. Throws InvalidArgument for a token
  // outside the vocabulary, an empty or overlong sentence.
  Tensor encode(const PackedTokens& sources, Threads threads = {}) const;

  // Reads the sources and starts `beams` hypotheses for each, which have said
  // nothing yet: hypothesis s * beams + b belongs to source s. The state
  // borrows from this decoder. Throws InvalidArgument for a token outside the
  // vocabulary, an empty or overlong sentence, or beams below 1.
  DecoderState start(const PackedTokens& sources, std::int64_t beams,
                     Threads threads = {}) const;
  // The same for rows.
  DecoderState start(const SourceRows& sources, std::int64_t beams,
                     Threads threads = {}) const;

  // The weights of start() with one source, which is not empty, and of a step()
  // for each token of the target: of the same queries and keys, to the bit.
  // Throws what those throw, and InvalidArgument for a model with a scale of
  // its own or relative positions, whose scores are more than queries and keys.
  AttentionTrace trace(std::span<const std::int32_t> source,
                       std::span<const std::int32_t> target,
                       Threads threads = {}) const;
  AttentionTrace trace(const SourceRows& source,
                       std::span<const std::int32_t> target,
                       Threads threads = {}) const;

 private:
  friend class DecoderState;
  struct Weights;
  struct TraceRecorder;
  // What the encoder reads: tokens, or rows.
  struct Sources;
  DecoderState start_traced(const Sources& sources, std::int64_t beams,
                            Threads threads, TraceRecorder* recorder) const;
  AttentionTrace trace_of(const Sources& source,
                          std::span<const std::int32_t> target,
                          Threads threads) const;
  std::unique_ptr<const Weights> weights_;
};

// The hypotheses of some sources, all equally long, and what they remember:
// keys and values of the words said so far, and those of the sources, which the
// hypotheses of a source share.
class DecoderState {
 public:
  ~DecoderState();
  DecoderState(DecoderState&&) noexcept;
  DecoderState& operator=(DecoderState&&) noexcept;

  std::int64_t hypotheses() const;
  std::int64_t length() const;  // how many tokens each has read
  std::int64_t source_of(std::int64_t hypothesis) const;
  std::int64_t source_length(std::int64_t source) const;

  // Each hypothesis reads one token, or kZeroEmbedding. The scores of the next
  // one then stand in logits(): the same bits as in a pass over the whole
  // sentence.
  void step(std::span<const std::int32_t> tokens);

  // [hypotheses, target_vocab], until the next step or reorder. Of a model that
  // copies they are log-probabilities.
  TensorView<const float, 2> logits() const;

  // The k best next tokens of each hypothesis, best first (of equals, the one
  // with the smaller number), and their log-probabilities.
  void best(std::int64_t k, TensorView<std::int32_t, 2> tokens,
            TensorView<float, 2> log_probabilities) const;

  // Hypothesis i continues hypothesis parents[i]. There may be fewer or
  // more than before; their sources must not fall, so those of one source stay
  // together. Only a step gives them logits and weights again.
  void reorder(std::span<const std::int64_t> parents);

  // Where each hypothesis looked in its source in the last step, in one layer
  // of the decoder, averaged over the heads: [hypotheses, longest source],
  // zeros after a source's end.
  void cross_attention(std::int64_t layer, TensorView<float, 2> weights) const;

 private:
  friend class TransformerDecoder;
  struct Memory;
  explicit DecoderState(std::unique_ptr<Memory> memory);
  std::unique_ptr<Memory> memory_;
};

}  // namespace regard::nn
