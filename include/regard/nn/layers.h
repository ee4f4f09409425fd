// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "regard/autograd/operations.h"
#include "regard/autograd/tape.h"
#include "regard/mask/mask.h"
#include "regard/nn/multi_head_attention.h"
#include "regard/nn/packed_parameters.h"
#include "regard/nn/parameters.h"
#include "regard/ops/activation.h"
#include "regard/ops/norm.h"
#include "regard/tensor/tensor.h"

// The layers that models are built from. A layer holds its sizes and the names
// of its parameters; the values stand in the model's StateDict, under the names
// that PyTorch gives them. Rows are tokens: sentences laid one after the other,
// without padding.
namespace regard::nn {

using autograd::Variable;

// For a gated one linear1 makes the gate and what it is multiplied with, the
// gate first.
using ops::Activation;
using ops::Norm;

// A float32 tensor of zeros for each parameter that `gradients` lacks. Throws
// InvalidArgument if one that is there does not fit.
void prepare_gradients(const StateDict& parameters, StateDict& gradients);

// One pass of a model over a batch: the tape, the values and their gradients,
// and where dropout stands.
class Pass {
 public:
  // Without gradients the parameters are constants. Without training nothing is
  // dropped.
  Pass(autograd::Tape& tape, const StateDict& parameters,
       StateDict* gradients = nullptr, Mode mode = Mode::kInference,
       std::uint64_t seed = 0)
      : tape_(tape),
        parameters_(parameters),
        gradients_(gradients),
        mode_(mode),
        seed_(seed) {}
  // Inference with weights that were packed before. Throws InvalidArgument for
  // a tape that records.
  Pass(autograd::Tape& tape, const PackedParameters& parameters);

  autograd::Tape& tape() { return tape_; }
  // One that is not packed.
  Variable parameter(const std::string& name);
  // x weight^T + bias, both by name: all products with parameters that can be
  // packed go through here. Without a bias its name is empty.
  Variable linear(const Variable& x, const std::string& weight,
                  const std::string& bias,
                  const autograd::LinearOptions& options = {});
  // Each call is a new place in the model, numbered in the order of the calls.
  autograd::ElementDropout dropout(float rate);
  std::uint64_t attention_seed();

 private:
  autograd::Tape& tape_;
  const StateDict& parameters_;
  const PackedParameters* packed_ = nullptr;
  StateDict* gradients_;
  Mode mode_;
  std::uint64_t seed_;
  std::uint32_t sites_ = 0;
  std::map<std::string, Variable> known_;
};

// x weight^T + bias, and the epilogue of LinearOptions.
struct Linear {
  std::string name;  // "linear1": linear1.weight, linear1.bias
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool bias = true;

  void declare(ParameterSpecs& specs) const;
  Variable operator()(Pass& pass, const Variable& x,
                      const autograd::LinearOptions& options = {}) const;
};

// LayerNorm or RMSNorm.
struct NormLayer {
  std::string name;
  Norm kind = Norm::kLayerNorm;
  std::int64_t width = 0;
  float epsilon = 1e-5f;

  void declare(ParameterSpecs& specs) const;
  Variable operator()(Pass& pass, const Variable& x) const;
  autograd::NormParameters parameters(Pass& pass) const;
};

// A row of `name`.weight for each token.
struct Embedding {
  std::string name;
  std::int64_t vocab = 0;
  std::int64_t width = 0;

  void declare(ParameterSpecs& specs) const;  // normal, variance 1 / width
  Variable operator()(Pass& pass, std::span<const std::int32_t> tokens,
                      const autograd::EmbeddingOptions& options = {}) const;
};

// The sizes and rates that all layers of a model share.
struct LayerConfig {
  std::int64_t model_dim = 0;
  std::int64_t heads = 1;
  std::int64_t feed_forward_dim = 0;
  Activation activation = Activation::kRelu;
  Norm norm = Norm::kLayerNorm;
  float norm_epsilon = 1e-5f;
  bool norm_first = false;
  float dropout = 0.0f;
  float attention_dropout = 0.0f;
  float activation_dropout = 0.0f;
};

// linear2(dropout(activation(linear1(x))))
struct FeedForward {
  std::string name;  // of the layer around it
  LayerConfig config;

  void declare(ParameterSpecs& specs) const;
  Variable operator()(Pass& pass, const Variable& x) const;
};

// Where sentences begin and end, and how the heads rotate with the place, if
// they do.
struct Sentences {
  std::span<const std::int64_t> offsets{};
  TensorView<const float, 2> rotary_cos{};  // [places, head_dim / 2]
  TensorView<const float, 2> rotary_sin{};
  // Of what is looked at: which rows look at each sentence. Empty: the rows of
  // the sentence with the same number.
  std::span<const std::int64_t> queries{};
};

// The attention of a layer, with the parameters of nn::MultiHeadAttention, over
// sentences of any lengths. Masks count batch and positions by sentence: a
// padded batch is sentences of one length and mask::lengths.
struct PackedAttention {
  std::string name;  // "encoder.layers.0.self_attn"
  LayerConfig config;

  void declare(ParameterSpecs& specs) const;        // for self attention
  void declare_cross(ParameterSpecs& specs) const;  // the same parameters
  // Self attention.
  Variable operator()(Pass& pass, const Variable& x, const Sentences& sentences,
                      const Mask& mask) const;
  // Cross attention to `memory`.
  Variable operator()(Pass& pass, const Variable& x, const Sentences& sentences,
                      const Variable& memory, const Sentences& memory_sentences,
                      const Mask& mask) const;
};

// As torch.nn.TransformerEncoderLayer:
//   x = norm1(x + dropout(attention(x))); x = norm2(x + dropout(ff(x)))
// or, if norm_first,
//   x = x + dropout(attention(norm1(x))); x = x + dropout(ff(norm2(x)))
// mask::causal() makes it the layer of a language model.
struct TransformerEncoderLayer {
  std::string name;  // "encoder.layers.0"
  LayerConfig config;

  void declare(ParameterSpecs& specs) const;
  Variable operator()(Pass& pass, const Variable& x, const Sentences& sentences,
                      const Mask& mask = {}) const;
};

struct DecoderMasks {
  Mask self = mask::causal();
  Mask cross{};
};

// As torch.nn.TransformerDecoderLayer: self attention, attention to the memory,
// feed-forward.
struct TransformerDecoderLayer {
  std::string name;  // "decoder.layers.0"
  LayerConfig config;

  void declare(ParameterSpecs& specs) const;
  Variable operator()(Pass& pass, const Variable& x, const Sentences& sentences,
                      const Variable& memory, const Sentences& memory_sentences,
                      const DecoderMasks& masks = {}) const;
};

// [places, width]: sin(place / 10000^(2i / width)) at column 2i, cos at 2i + 1.
Tensor sinusoidal_positions(std::int64_t places, std::int64_t width);

}  // namespace regard::nn
