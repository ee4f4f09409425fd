// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "autograd/products.h"
#include "nn/transformer_pass.h"
#include "regard/core/aligned_buffer.h"
#include "regard/nn/decoding.h"

// A Transformer's weights as inference reads them: packed once. Every step
// makes the bits that the layers of regard/nn/layers.h make, because the same
// kernels do it in the same order.
namespace regard::nn::detail {

using autograd::ConstRows;
using autograd::Rows;
using autograd::RowsBody;

// Some rows of a linear layer's weight, packed, and their bias.
class PackedLinear {
 public:
  PackedLinear() = default;
  // `first` and `count` choose rows; count < 0: all from `first`.
  PackedLinear(const StateDict& parameters, const std::string& weight,
               const std::string& bias, std::int64_t first = 0,
               std::int64_t count = -1);

  std::int64_t in() const { return in_; }
  std::int64_t out() const { return out_; }
  // y [rows, out] = x [rows, in] weight^T + bias, both contiguous.
  void operator()(const float* x, std::int64_t rows, float* y, Threads threads,
                  RowsBody after = autograd::no_rows) const;

 private:
  Tensor packed_;
  std::vector<float> bias_;  // empty: none
  std::int64_t in_ = 0;
  std::int64_t out_ = 0;
};

struct NormWeights {
  NormWeights() = default;
  NormWeights(const StateDict& parameters, const std::string& name,
              const TransformerConfig& c);
  // y = norm(x), y may be x.
  void operator()(const float* x, std::int64_t rows, float* y,
                  Threads threads) const;

  std::vector<float> weight, bias;
  float epsilon = 0;
};

struct FeedForwardWeights {
  PackedLinear linear1, linear2;
};

struct EncoderLayerWeights {
  PackedLinear qkv, out;
  FeedForwardWeights feed_forward;
  NormWeights norm1, norm2;
};

struct DecoderLayerWeights {
  PackedLinear qkv, self_out;
  PackedLinear q, kv, cross_out;
  FeedForwardWeights feed_forward;
  NormWeights norm1, norm2, norm3;
};

// y = linear2(activation(linear1(x))); `inner` has room for linear1's result
// twice.
void feed_forward(const FeedForwardWeights& w, Activation f, const float* x,
                  std::int64_t rows, float* inner, float* y, Threads threads);

// x += branch, then x = norm(x) if the norms come after.
struct Residual {
  bool norm_first = false;
  // What a block reads: norm(x) in `normed`, or x itself.
  const float* input(const NormWeights& norm, const float* x, std::int64_t rows,
                     float* normed, Threads threads) const;
  void add(const NormWeights& norm, const float* branch, std::int64_t rows,
           float* x, Threads threads) const;
};

// Memory that only grows; what it holds is lost when it does.
class Room {
 public:
  float* of(std::int64_t floats) {
    const auto bytes = static_cast<std::size_t>(floats) * sizeof(float);
    if (memory_.size() < bytes) memory_ = AlignedBuffer(bytes + bytes / 2);
    return reinterpret_cast<float*>(memory_.data());
  }
  const float* data() const {
    return reinterpret_cast<const float*>(memory_.data());
  }

 private:
  AlignedBuffer memory_;
};

// What a state computes in, and the tables that it may have to make longer.
struct Workspace {
  Room x, normed, projected, attended, branch, inner, logits;
  std::vector<Room> cross_q;  // [layers]
  PositionTables tables;
};

// Workspaces that states leave to the next ones: fresh pages, and sines, cost
// as much as a short sentence.
class Workspaces {
 public:
  std::unique_ptr<Workspace> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Workspace>();
    std::unique_ptr<Workspace> workspace = std::move(free_.back());
    free_.pop_back();
    return workspace;
  }
  void give(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

}  // namespace regard::nn::detail

namespace regard::nn {

struct TransformerDecoder::Weights {
  explicit Weights(const Transformer& model);

  TransformerConfig config;
  Tensor source_table, target_table;    // [vocab, model_dim]
  Tensor source_places, target_places;  // learned; else empty
  std::vector<detail::EncoderLayerWeights> encoder;
  std::vector<detail::DecoderLayerWeights> decoder;
  detail::NormWeights encoder_norm, decoder_norm;
  detail::PackedLinear output;
  mutable detail::Workspaces workspaces;
};

}  // namespace regard::nn
