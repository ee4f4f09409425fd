// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "regard/attention/weights.h"
#include "regard/nn/decoding.h"

namespace regard::nn {

// Records the weights of a state's only source and hypothesis. The cache has
// keys in an order of its own, so they are kept here once more.
struct TransformerDecoder::TraceRecorder {
  AttentionTrace trace;
  std::vector<Tensor> keys;  // [layers]: [target, model_dim]

  TraceRecorder(const TransformerConfig& c, std::int64_t source,
                std::int64_t target) {
    trace.encoder = Tensor({c.encoder_layers, c.heads, source, source});
    trace.decoder = Tensor({c.decoder_layers, c.heads, target, target});
    trace.cross = Tensor({c.decoder_layers, c.heads, target, source});
    const auto vectors = [&c](std::int64_t layers, std::int64_t q,
                              std::int64_t k) {
      const std::int64_t dim = c.dim_of_head();
      return HeadVectors{Tensor({layers, c.heads, q, dim}),
                         Tensor({layers, c.heads, k, dim})};
    };
    trace.encoder_vectors = vectors(c.encoder_layers, source, source);
    trace.decoder_vectors = vectors(c.decoder_layers, target, target);
    trace.cross_vectors = vectors(c.decoder_layers, target, source);
    for (std::int64_t i = 0; i < c.decoder_layers; ++i) {
      keys.emplace_back(Shape{target, c.model_dim});
    }
  }

  // Rows [first, first + from's rows) of one layer.
  static void keep(Tensor& all, std::int64_t layer, std::int64_t first,
                   TensorView<const float, 4> from) {
    const auto to = all.view<float, 4>();
    for (std::int64_t head = 0; head < from.extent(1); ++head) {
      for (std::int64_t row = 0; row < from.extent(2); ++row) {
        std::copy_n(from.at(0, head, row), from.extent(3),
                    to.at(layer, head, first + row));
      }
    }
  }

  // The weights of rows [first, first + q's rows) of one layer.
  static void record(Tensor& all, HeadVectors& vectors, std::size_t layer,
                     std::int64_t first, TensorView<const float, 4> q,
                     TensorView<const float, 4> k, Threads threads) {
    keep(vectors.q, static_cast<std::int64_t>(layer), first, q);
    keep(vectors.k, static_cast<std::int64_t>(layer), 0, k);
    const auto to = all.view<float, 4>();
    AttentionOptions options;
    options.threads = threads;
    attention_weights(
        q, k,
        TensorView<float, 4>(to.at(static_cast<std::int64_t>(layer), 0, first),
                             {1, to.extent(1), q.extent(2), k.extent(2)},
                             {to.stride(0), to.stride(1), to.stride(2), 1}),
        options);
  }
};

}  // namespace regard::nn
