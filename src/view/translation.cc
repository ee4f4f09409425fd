// SPDX-License-Identifier: Apache-2.0
#include "regard/view/translation.h"

#include <utility>

namespace regard::view {
namespace {

void add(Trace& trace, SectionConfig config, const Tensor& weights) {
  if (weights.shape()[0] == 0) return;  // an encoder without layers
  config.heads = weights.shape()[1];
  Section& section = trace.add_section(std::move(config));
  const auto all = weights.view<float, 4>();
  for (std::int64_t layer = 0; layer < all.extent(0); ++layer) {
    section.add_layer(
        {all.at(layer), {all.extent(1), all.extent(2), all.extent(3)}});
  }
}

}  // namespace

Trace trace_translation(const tasks::Translator& translator,
                        const std::string& sentence,
                        const tasks::TranslateOptions& options) {
  tasks::TranslationTrace seen = translator.trace(sentence, options);
  Trace trace;
  trace.source = sentence;
  trace.target = std::move(seen.text);
  trace.steps = static_cast<std::int64_t>(seen.written.size());
  const std::size_t source = trace.add_axis({"source", std::move(seen.source)});
  const std::size_t target =
      trace.add_axis({"target", std::move(seen.written)});
  const std::size_t read = trace.add_axis({"read", std::move(seen.read)});
  SectionConfig encoder{"encoder", source, source, 0, true};
  SectionConfig decoder{"decoder", target, read, 0, true};
  SectionConfig cross{"cross", target, source, 0, false};
  add(trace, std::move(encoder), seen.weights.encoder);
  add(trace, std::move(decoder), seen.weights.decoder);
  add(trace, std::move(cross), seen.weights.cross);
  return trace;
}

}  // namespace regard::view
