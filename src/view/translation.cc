// SPDX-License-Identifier: Apache-2.0
#include "regard/view/translation.h"

#include <utility>

#include "io/read_file.h"
#include "json/json.h"
#include "regard/core/error.h"
#include "view/transformer_sections.h"

namespace regard::view {

Trace trace_translation(const tasks::Translator& translator,
                        const std::string& sentence,
                        const tasks::TranslateOptions& options) {
  tasks::TranslationTrace seen = translator.trace(sentence, options);
  require(!seen.source.empty(), "view::trace_translation",
          "no character of the sentence is in the model's vocabulary");
  Trace trace;
  trace.source = sentence;
  trace.target = std::move(seen.text);
  trace.steps = static_cast<std::int64_t>(seen.written.size());
  const std::size_t source = trace.add_axis({"source", std::move(seen.source)});
  const std::size_t target =
      trace.add_axis({"target", std::move(seen.written)});
  const std::size_t read = trace.add_axis({"read", std::move(seen.read)});
  add_sections(trace, {source, target, read}, seen.weights);
  return trace;
}

Note read_note(const std::filesystem::path& model) {
  constexpr const char* kWhere = "view::read_note";
  const std::filesystem::path path = model / "note.json";
  if (!io::is_there(path)) return {};
  const auto json = Json::parse_or_null(io::read_regular(path, kWhere));
  Note note;
  bool strings = json.is_object();
  for (const auto& [language, line] : json.items()) {
    strings = strings && line.is_string();
    if (strings) note[language] = line.text();
  }
  if (!strings) {
    throw_parse_error(kWhere, "a note is {\"en\": \"...\", \"zh\": \"...\"}; '",
                      path.string(), "' is something else");
  }
  return note;
}

}  // namespace regard::view
