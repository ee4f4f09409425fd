// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "regard/attention/attention.h"
#include "regard/core/threads.h"
#include "regard/mask/mask.h"
#include "regard/tensor/tensor.h"
#include "regard/tensor/tensor_view.h"

namespace regard::nn {

// The shape and the kind of a layer. A field of 0 takes the value in its
// comment.
struct MultiHeadAttentionConfig {
  std::int64_t model_dim = 0;  // width of query and output; must be given
  std::int64_t heads = 1;
  std::int64_t kv_heads = 0;        // heads; must divide heads
  std::int64_t key_dim = 0;         // model_dim; width of the key input
  std::int64_t value_dim = 0;       // model_dim; width of the value input
  std::int64_t head_dim = 0;        // model_dim / heads, without remainder
  std::int64_t value_head_dim = 0;  // head_dim
  bool bias = true;                 // of the four projections
  bool bias_kv = false;             // one more key and value: bias_k, bias_v
  bool add_zero_attn = false;       // one more key and value, all zeros
  float dropout = 0.0f;             // of the weights, in training; in [0, 1)
  Score score = Score::kDot;        // kCosine learns a factor per head
  // 1 / sqrt(head_dim) for dot scores, 1 for cosine scores.
  std::optional<float> scale{};
};

enum class Mode {
  kInference,  // no dropout
  kTraining,
};

// What a forward call made on its way, for backward. Filled by forward, reused
// by the next one. It remembers the views of the call's inputs and options
// (mask, bias, slopes), which must stay as they were until backward is done.
class MultiHeadAttentionContext {
 public:
  MultiHeadAttentionContext();
  ~MultiHeadAttentionContext();
  MultiHeadAttentionContext(MultiHeadAttentionContext&&) noexcept;
  MultiHeadAttentionContext& operator=(MultiHeadAttentionContext&&) noexcept;

 private:
  friend class MultiHeadAttention;
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

// Where the gradients of a call's inputs go; overwritten. A null view is not
// wanted. Views of the same memory get the sum: {.query = d, .key = d, .value =
// d} is self attention.
struct MultiHeadAttentionGradients {
  TensorView<float, 3> query{}, key{}, value{};
  TensorView<float, 4> bias{};  // of options.bias, shaped like it
};

// What one call does, beyond its inputs.
struct MultiHeadAttentionOptions {
  // Over the keys that are passed in. The keys that bias_kv and add_zero_attn
  // append are not the mask's business: every query sees them.
  Mask mask{};
  // Added to the scores: [batch or 1, heads or 1, q_len or 1, kv_len or 1], as
  // in attention_forward. Appended keys get 0.
  TensorView<const float, 4> bias{};
  // [heads]. As in attention_forward; appended keys have no position and get 0.
  std::span<const float> alibi_slopes{};
  // As in attention_forward, for all keys. 0: none.
  float softcap = 0.0f;
  Mode mode = Mode::kInference;
  std::uint64_t dropout_seed = 0;  // a new one for each training step
  // If given, written: the weights before dropout, for each head and averaged
  // over the heads. The appended keys come last: bias_k, then the zero.
  TensorView<float, 4> weights{};          // [batch, heads, q_len, all_keys]
  TensorView<float, 3> average_weights{};  // [batch, q_len, all_keys]
  // If given, filled: what backward needs. Not with kBFloat16.
  MultiHeadAttentionContext* context = nullptr;
  Threads threads{};
  // kBFloat16: the projections round their inputs and weights to bf16 and sum
  // in float, and so does the attention between them; see Compute. The weights
  // that a call returns are those of kFloat32, for its queries and keys.
  Compute compute = Compute::kFloat32;
};

// Multi-head attention as in "Attention Is All You Need", with the parameters
// of torch.nn.MultiheadAttention under its names:
//
//   in_proj_weight  [q_width + k_width + v_width, model_dim]   W_q, W_k, W_v
//   in_proj_bias    [q_width + k_width + v_width]
//   out_proj.weight [model_dim, heads * value_head_dim]        W_o
//   out_proj.bias   [model_dim]
//   bias_k, bias_v  [1, 1, k_width], [1, 1, v_width]
//   cosine_scale    [heads]   ours: the factor of cosine scores, the inverse of
//                             a temperature
//
// where q_width = heads * head_dim, k_width = kv_heads * head_dim and
// v_width = kv_heads * value_head_dim. If key_dim or value_dim is not
// model_dim, in_proj_weight is q_proj_weight [q_width, model_dim],
// k_proj_weight [k_width, key_dim] and v_proj_weight [v_width, value_dim]
// instead.
//
//   Q = query W_q^T + b_q,  K = key W_k^T + b_k,  V = value W_v^T + b_v
//   out = concat over heads of attention(Q_h, K_h, V_h)  W_o^T + b_o
//
// A query that sees no key has an attention of zero, so its output is b_o
// (where PyTorch gives NaN). All calls on a const layer may run at the same
// time.
class MultiHeadAttention {
 public:
  // Random parameters, by PyTorch's rules: in_proj_weight Xavier-uniform (as
  // one matrix, or three), out_proj.weight uniform in +-1 / sqrt(its width),
  // bias_k and bias_v Xavier-normal, the other biases 0; cosine_scale is 10, as
  // in Swin Transformer V2. Throws InvalidArgument for a config that makes no
  // sense.
  MultiHeadAttention(const MultiHeadAttentionConfig& config,
                     std::uint64_t seed);
  // Parameters from elsewhere. Throws InvalidArgument if one is missing, has
  // another shape or type than float32, or is not one of the layer's.
  MultiHeadAttention(const MultiHeadAttentionConfig& config,
                     StateDict parameters);

  // As given, with every 0 replaced by what it stands for.
  const MultiHeadAttentionConfig& config() const { return config_; }
  const StateDict& parameters() const { return parameters_; }
  // How many keys bias_kv and add_zero_attn append: all_keys - kv_len.
  std::int64_t appended_keys() const {
    return (config_.bias_kv ? 1 : 0) + (config_.add_zero_attn ? 1 : 0);
  }

  // Attention of `query` to the keys and values made from `key` and `value`.
  //
  //   query [batch, q_len,  model_dim]   or [q_len,  model_dim]
  //   key   [batch, kv_len, key_dim]     or [kv_len, key_dim]
  //   value [batch, kv_len, value_dim]   or [kv_len, value_dim]
  //   out   [batch, q_len,  model_dim]   or [q_len,  model_dim]
  //
  // Lengths and batch may be 0. An unbatched call is a batch of one, in masks
  // and options too. `out` is written last, so it may overlap the inputs.
  // Throws InvalidArgument if shapes or options disagree; nothing is written
  // then.
  void forward(TensorView<const float, 3> query, TensorView<const float, 3> key,
               TensorView<const float, 3> value, TensorView<float, 3> out,
               const MultiHeadAttentionOptions& options = {}) const;
  void forward(TensorView<const float, 2> query, TensorView<const float, 2> key,
               TensorView<const float, 2> value, TensorView<float, 2> out,
               const MultiHeadAttentionOptions& options = {}) const;

  // Cross attention: the memory is key and value.
  void forward(TensorView<const float, 3> query,
               TensorView<const float, 3> memory, TensorView<float, 3> out,
               const MultiHeadAttentionOptions& options = {}) const {
    forward(query, memory, memory, out, options);
  }
  void forward(TensorView<const float, 2> query,
               TensorView<const float, 2> memory, TensorView<float, 2> out,
               const MultiHeadAttentionOptions& options = {}) const {
    forward(query, memory, memory, out, options);
  }

  // Self attention: the input is query, key and value.
  void forward(TensorView<const float, 3> input, TensorView<float, 3> out,
               const MultiHeadAttentionOptions& options = {}) const {
    forward(input, input, input, out, options);
  }
  void forward(TensorView<const float, 2> input, TensorView<float, 2> out,
               const MultiHeadAttentionOptions& options = {}) const {
    forward(input, input, input, out, options);
  }

  // The gradients of the forward call that filled `context`, given that of its
  // out. Returns those of the parameters, under their names. Parameters must
  // not have changed since. The bits do not depend on threads. Throws
  // InvalidArgument if no call filled the context, or one of a layer of other
  // widths, or shapes disagree.
  //
  // Tensors of `reuse` that have a parameter's name and shape are written over
  // and returned: a loop that hands back what it got last time makes no new
  // memory.
  StateDict backward(const MultiHeadAttentionContext& context,
                     TensorView<const float, 3> d_out,
                     const MultiHeadAttentionGradients& wanted = {},
                     StateDict reuse = {}) const;

  // Takes new values, as the constructor does: a step of training.
  void set_parameters(StateDict parameters);

 private:
  void pack();

  MultiHeadAttentionConfig config_;
  StateDict parameters_;
  // The weights once more, in the order that the products read them.
  struct Packed;
  std::shared_ptr<Packed> packed_;
};

}  // namespace regard::nn
