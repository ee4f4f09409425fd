// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/arena.h"
#include "ops/norms.h"
#include "ops/product.h"
#include "regard/attention/attention.h"
#include "regard/nn/rotary.h"
#include "regard/tensor/tensor.h"

// The Transformer layer of inference: weights packed once, memory from an
// arena. A layer of any kind is a choice of its parts; what is null is not
// there. For the same weights the bits are those of regard/nn/layers.h, because
// the same kernels do the same in the same order.
namespace regard::nn::detail {

struct PackedLinear {
  ops::PackedWeights weight;
  std::vector<float> bias;  // empty: none

  PackedLinear() = default;
  // Bias may be empty.
  explicit PackedLinear(
      ops::ConstRows weight, std::span<const float> bias = {},
      ops::WeightStorage storage = ops::WeightStorage::kFloat32);
  // Several layers of one input as one: their results side by side.
  explicit PackedLinear(
      std::span<const ops::ConstRows> weights,
      ops::WeightStorage storage = ops::WeightStorage::kFloat32);

  explicit PackedLinear(ops::PackedWeights packed)
      : weight(std::move(packed)) {}

  bool is_null() const { return weight.is_null(); }
  const float* bias_data() const {
    return bias.empty() ? nullptr : bias.data();
  }
  // x weight^T + bias
  ops::Product operator()(ops::ConstRows x, ops::Rows y) const {
    return {.x = x, .weight = &weight, .bias = bias_data(), .y = y};
  }
};

// What a block of a layer, y = block(x), has around it.
struct BlockNorms {
  // norm_first: x + block(norm(x)); else norm(x + block(x)).
  ops::NormWeights norm;
  // Of the block's result before it is added, as Gemma 2 has it.
  ops::NormWeights result_norm;
};

struct AttentionWeights {
  BlockNorms norms{};
  // Self attention: q, k and v, heads side by side. Cross attention: q alone;
  // who attends to a memory makes its keys and values once.
  PackedLinear in{};
  PackedLinear out{};
  // QK-norm: of each head, before it is rotated.
  ops::NormWeights q_norm{}, k_norm{};
};

struct FeedForwardWeights {
  BlockNorms norms;
  ops::Activation activation = ops::Activation::kRelu;
  PackedLinear gate;  // of a gated activation
  PackedLinear up, down;
};

struct TransformerLayerWeights {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;  // of self attention
  std::int64_t head_dim = 0;
  bool norm_first = false;
  AttentionWeights self{}, cross{};  // cross.in null: no cross attention
  FeedForwardWeights feed_forward{};
};

// The heads of some rows, [1, heads, rows, head_dim] each. Cross attention has
// no k and v here.
struct LayerHeads {
  TensorView<const float, 4> q{}, k{}, v{};
  TensorView<float, 4> out{};
};
// Writes `out`: the caller knows where keys and values are kept, which of them
// a row sees, and the scale, softcap and bias of the scores.
using Attend = FunctionRef<void(const LayerHeads&)>;

// One pass of some rows through a layer.
struct LayerPass {
  Attend self;
  Attend cross;  // not called where there is no cross attention
  // Where the rows of x stand in their texts, and the angles there; null: the
  // heads are not rotated.
  const RotaryTable* rotary = nullptr;
  RotaryPairing pairing = RotaryPairing::kHalfSplit;
  std::span<const std::int64_t> positions{};
  ops::Rows cross_q{};  // where the queries of cross attention go; may be null
  Threads threads{};
};

// The residual stream, and as much memory beside it: each block reads one and
// writes the other.
struct ResidualStream {
  ops::Rows x, other;

  ResidualStream(std::int64_t rows, std::int64_t width, ops::Arena& arena)
      : x(arena.take(rows * width), {rows, width}),
        other(arena.take(rows * width), {rows, width}) {}
};

// stream.x = layer(stream.x)
void run_layer(const TransformerLayerWeights& layer, const LayerPass& pass,
               ResidualStream& stream, ops::Arena& arena);

// [1, heads, rows, dim] in columns of rows `stride` floats apart.
template <typename T>
TensorView<T, 4> heads_in(T* data, std::int64_t rows, std::int64_t stride,
                          std::int64_t heads, std::int64_t dim) {
  return {data, {1, heads, rows, dim}, {rows * stride, dim, stride, 1}};
}

}  // namespace regard::nn::detail
