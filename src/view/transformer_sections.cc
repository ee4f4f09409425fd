// SPDX-License-Identifier: Apache-2.0
#include "view/transformer_sections.h"

#include <cmath>
#include <utility>

#include "view/layer_part.h"

namespace regard::view {
namespace {

void add(Trace& trace, SectionConfig config, const Tensor& weights,
         const nn::HeadVectors& vectors) {
  if (weights.shape()[0] == 0) return;  // an encoder without layers
  config.heads = weights.shape()[1];
  Section& section = trace.add_section(std::move(config));
  const auto head_dim = static_cast<double>(vectors.q.shape()[3]);
  for (std::int64_t layer = 0; layer < weights.shape()[0]; ++layer) {
    section.add_layer(layer_part(weights, layer));
    section.add_vectors(layer_part(vectors.q, layer),
                        layer_part(vectors.k, layer), 1 / std::sqrt(head_dim));
  }
}

}  // namespace

void add_sections(Trace& trace, const TransformerAxes& axes,
                  const nn::AttentionTrace& seen) {
  const auto [source, target, read] = axes;
  add(trace, {"encoder", source, source, 0, true}, seen.encoder,
      seen.encoder_vectors);
  add(trace, {"decoder", target, read, 0, true}, seen.decoder,
      seen.decoder_vectors);
  add(trace, {"cross", target, source, 0, false}, seen.cross,
      seen.cross_vectors);
}

}  // namespace regard::view
