// SPDX-License-Identifier: Apache-2.0
#include "nn/transformer_layer.h"

#include <algorithm>

#include "kernels/rope.h"
#include "kernels/rows.h"

namespace regard::nn::detail {
namespace {

using ops::ConstRows;
using ops::Rows;

// Fewer elements are done before another thread has woken up.
Threads for_elements(Threads threads, std::int64_t elements) {
  if (elements < (1 << 15)) threads.count = 1;
  return threads;
}

// One block of a layer: gives what the block reads, takes its last product.
class Block {
 public:
  Block(const TransformerLayerWeights& layer, const BlockNorms& norms,
        ResidualStream& stream, ops::Arena& arena, Threads threads)
      : norm_first_(layer.norm_first),
        norms_(norms),
        stream_(stream),
        arena_(arena),
        scope_(arena),
        threads_(threads) {}

  Rows rows(std::int64_t width) const {
    return {arena_.take(stream_.x.extent(0) * width),
            {stream_.x.extent(0), width}};
  }

  ConstRows input() const {
    if (!norm_first_ || norms_.norm.is_null()) return stream_.x;
    const Rows normed = rows(stream_.x.extent(1));
    norms_.norm(stream_.x, normed, threads_);
    return normed;
  }

  // x = x + last(y), with the norms around it.
  void finish(const PackedLinear& last, ConstRows y) const {
    ops::Product product = last(y, stream_.other);
    if (norms_.result_norm.is_null()) product.epilogue.residual = stream_.x;
    ops::multiply(product, threads_);
    if (!norms_.result_norm.is_null()) {
      norms_.result_norm(stream_.other, stream_.other, threads_);
      add(stream_.x, stream_.other);
    }
    std::swap(stream_.x, stream_.other);
    if (!norm_first_ && !norms_.norm.is_null()) {
      norms_.norm(stream_.x, stream_.x, threads_);
    }
  }

 private:
  void add(Rows x, Rows y) const {
    ops::over_row_blocks(
        for_elements(threads_, x.size()), x.extent(0), ops::kRowBlock,
        [&](std::int64_t begin, std::int64_t end) {
          kernels::add_scaled(x.at(begin), 1.0f, (end - begin) * x.extent(1),
                              y.at(begin));
        });
  }

  bool norm_first_;
  const BlockNorms& norms_;
  ResidualStream& stream_;
  ops::Arena& arena_;
  ops::Arena::Scope scope_;
  Threads threads_;
};

// QK-norm and rotary positions of q and k, which stand side by side.
void finish_heads(const TransformerLayerWeights& layer, const LayerPass& pass,
                  Rows qkv) {
  const AttentionWeights& w = layer.self;
  const std::int64_t dim = layer.head_dim;
  const bool norms = !w.q_norm.is_null() || !w.k_norm.is_null();
  if (!norms && pass.rotary == nullptr) return;
  const Threads one{.count = 1};
  const auto norm = [&](const ops::NormWeights& of, float* at,
                        std::int64_t heads) {
    const Rows rows(at, {heads, dim});
    if (!of.is_null()) of(rows, rows, one);
  };
  TensorView<const float, 2> cos, sin;
  if (pass.rotary != nullptr) {
    cos = pass.rotary->cos.view<float, 2>();
    sin = pass.rotary->sin.view<float, 2>();
  }
  const auto one_row = [&](std::int64_t row) {
    float* const q = qkv.at(row);
    norm(w.q_norm, q, layer.heads);
    norm(w.k_norm, q + layer.heads * dim, layer.kv_heads);
    if (pass.rotary == nullptr) return;
    const std::int64_t place = pass.positions[static_cast<std::size_t>(row)];
    kernels::rope({.pairs = pass.pairing == RotaryPairing::kInterleaved
                                ? kernels::RopePairs::kInterleaved
                                : kernels::RopePairs::kHalfSplit,
                   .heads = layer.heads + layer.kv_heads,
                   .dim = dim,
                   .half = cos.extent(1),
                   .x = q,
                   .x_stride = dim,
                   .cos = cos.at(place),
                   .sin = sin.at(place),
                   .y = q,
                   .y_stride = dim});
  };
  ops::over_row_blocks(for_elements(pass.threads, qkv.size()), qkv.extent(0),
                       ops::kRowBlock,
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t r = begin; r < end; ++r) one_row(r);
                       });
}

}  // namespace

PackedLinear::PackedLinear(ConstRows matrix, std::span<const float> values,
                           ops::WeightStorage storage)
    : weight(ops::PackedWeights::pack(matrix, {.storage = storage})),
      bias(values.begin(), values.end()) {}

PackedLinear::PackedLinear(std::span<const ConstRows> weights,
                           ops::WeightStorage storage) {
  std::int64_t out = 0;
  for (const ConstRows& part : weights) out += part.extent(0);
  const std::int64_t in = weights.front().extent(1);
  Tensor all({out, in});
  float* to = all.values<float>().data();
  for (const ConstRows& part : weights) {
    for (std::int64_t r = 0; r < part.extent(0); ++r) {
      to = std::copy_n(part.at(r), in, to);
    }
  }
  weight = ops::PackedWeights::pack(all.view<float, 2>(), {.storage = storage});
}

void run_layer(const TransformerLayerWeights& layer, const LayerPass& pass,
               ResidualStream& stream, ops::Arena& arena) {
  const std::int64_t rows = stream.x.extent(0);
  const std::int64_t dim = layer.head_dim;
  const std::int64_t width = layer.heads * dim;
  const std::int64_t kv_width = layer.kv_heads * dim;
  {  // 1. Self attention.
    const AttentionWeights& w = layer.self;
    const Block block(layer, w.norms, stream, arena, pass.threads);
    const Rows qkv = block.rows(width + 2 * kv_width);
    ops::multiply(w.in(block.input(), qkv), pass.threads);
    finish_heads(layer, pass, qkv);
    const Rows attended = block.rows(width);
    const std::int64_t stride = qkv.stride(0);
    const float* const q = qkv.data();
    pass.self(
        {.q = heads_in(q, rows, stride, layer.heads, dim),
         .k = heads_in(q + width, rows, stride, layer.kv_heads, dim),
         .v = heads_in(q + width + kv_width, rows, stride, layer.kv_heads, dim),
         .out = heads_in(attended.data(), rows, width, layer.heads, dim)});
    block.finish(w.out, attended);
  }
  if (!layer.cross.in.is_null()) {  // 2. Cross attention.
    const AttentionWeights& w = layer.cross;
    const Block block(layer, w.norms, stream, arena, pass.threads);
    const Rows q = pass.cross_q.is_null() ? block.rows(width) : pass.cross_q;
    ops::multiply(w.in(block.input(), q), pass.threads);
    const Rows attended = block.rows(width);
    const float* const read = q.data();
    pass.cross(
        {.q = heads_in(read, rows, width, layer.heads, dim),
         .out = heads_in(attended.data(), rows, width, layer.heads, dim)});
    block.finish(w.out, attended);
  }
  // 3. Feed-forward.
  const FeedForwardWeights& w = layer.feed_forward;
  const Block block(layer, w.norms, stream, arena, pass.threads);
  const std::int64_t inner = w.up.weight.out();
  const Rows hidden = block.rows(inner);
  ops::Product up = w.up(block.input(), hidden);
  up.epilogue.activation = w.activation;
  if (is_gated(w.activation)) {
    up.epilogue.gate = &w.gate.weight;
    up.epilogue.gate_bias = w.gate.bias_data();
    up.epilogue.gate_memory = block.rows(inner);
  }
  ops::multiply(up, pass.threads);
  block.finish(w.down, hidden);
}

}  // namespace regard::nn::detail
