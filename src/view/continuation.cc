// SPDX-License-Identifier: Apache-2.0
#include "regard/view/continuation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "regard/core/error.h"
#include "regard/tasks/generate.h"
#include "view/layer_part.h"

namespace regard::view {
namespace {

// The likeliest tokens after `tokens`, up to one that ends a text.
std::vector<std::int32_t> go_on(const tasks::LoadedModel& loaded,
                                const std::vector<std::int32_t>& tokens,
                                const ContinuationOptions& options) {
  std::vector<std::int32_t> written;
  tasks::LanguageState state(loaded.model, {.threads = options.threads});
  std::vector<std::int32_t> next = tokens;
  while (std::ssize(written) < options.max_tokens) {
    state.read(std::vector<tasks::LanguageState::Reading>{{0, next}});
    const auto scores = state.logits();
    const auto vocab = static_cast<std::size_t>(scores.extent(1));
    const std::int32_t token =
        tasks::sample_token({scores.at(0), vocab}, {}, state.length(0));
    const auto& ends = loaded.stop_tokens;
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) break;
    written.push_back(token);
    next = {token};
  }
  return written;
}

// llama2.c writes its special pieces on lines of their own.
std::string without_line_ends(const std::string& piece) {
  const std::size_t begin = piece.find_first_not_of('\n');
  if (begin == std::string::npos) return piece;
  return piece.substr(begin, piece.find_last_not_of('\n') + 1 - begin);
}

// Each piece as the text has it; what has no text of its own, such as the
// begin, or the first bytes of a character, as the tokenizer writes it.
Axis axis_of(const text::Tokenizer& tokenizer,
             const std::vector<std::int32_t>& tokens) {
  Axis axis{"text", {}};
  text::TextStream stream(tokenizer);
  for (const std::int32_t token : tokens) {
    std::string label = stream.next(token);
    if (label.empty()) label = without_line_ends(tokenizer.piece(token));
    if (label.starts_with(' ')) label.replace(0, 1, "\xe2\x96\x81");
    axis.tokens.push_back(std::move(label));
  }
  return axis;
}

}  // namespace

Trace trace_continuation(const tasks::LoadedModel& loaded,
                         const std::string& text,
                         const ContinuationOptions& options) {
  constexpr const char* kWhere = "view::trace_continuation";
  std::vector<std::int32_t> tokens = loaded.tokenizer->encode(text, {}).ids;
  const std::int64_t context = loaded.model.config().context;
  require(!tokens.empty(), kWhere, "a text must have tokens; it has none");
  require(options.max_tokens >= 0 &&
              std::ssize(tokens) + options.max_tokens <= context,
          kWhere, "the model reads at most ", context, " tokens; the text has ",
          tokens.size(), " and ", options.max_tokens, " are to follow");
  const std::vector<std::int32_t> written = go_on(loaded, tokens, options);
  Trace trace;
  trace.source = text;
  text::TextStream stream(*loaded.tokenizer);
  for (const std::int32_t token : tokens) (void)stream.next(token);
  for (const std::int32_t token : written) trace.target += stream.next(token);
  tokens.insert(tokens.end(), written.begin(), written.end());

  const std::size_t axis = trace.add_axis(axis_of(*loaded.tokenizer, tokens));
  tasks::LanguageState state(loaded.model, {.threads = options.threads});
  const tasks::LanguageTrace seen = state.trace({0, tokens});
  const std::int64_t heads = loaded.model.config().heads;
  Section& section = trace.add_section({"decoder", axis, axis, heads, true});
  for (std::int64_t layer = 0; layer < seen.weights.shape()[0]; ++layer) {
    section.add_layer(layer_part(seen.weights, layer));
    if (seen.queries.size() == 0) continue;
    section.add_vectors(layer_part(seen.queries, layer),
                        layer_part(seen.keys, layer), seen.scale);
  }
  return trace;
}

}  // namespace regard::view
