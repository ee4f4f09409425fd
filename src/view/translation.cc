// SPDX-License-Identifier: Apache-2.0
#include "regard/view/translation.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/read_file.h"
#include "regard/core/error.h"
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
  add(trace, std::move(encoder), seen.weights.encoder,
      seen.weights.encoder_vectors);
  add(trace, std::move(decoder), seen.weights.decoder,
      seen.weights.decoder_vectors);
  add(trace, std::move(cross), seen.weights.cross, seen.weights.cross_vectors);
  return trace;
}

Note read_note(const std::filesystem::path& model) {
  constexpr const char* kWhere = "view::read_note";
  const std::filesystem::path path = model / "note.json";
  if (!std::filesystem::exists(path)) return {};
  const auto json = nlohmann::json::parse(io::read_file(path, kWhere), nullptr,
                                          /*allow_exceptions=*/false);
  Note note;
  bool strings = json.is_object();
  for (const auto& [language, line] : json.items()) {
    strings = strings && line.is_string();
    if (strings) note[language] = line;
  }
  if (!strings) {
    throw_parse_error(kWhere, "a note is {\"en\": \"...\", \"zh\": \"...\"}; '",
                      path.string(), "' is something else");
  }
  return note;
}

}  // namespace regard::view
