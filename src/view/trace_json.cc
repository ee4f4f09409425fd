// SPDX-License-Identifier: Apache-2.0
#include "view/trace_json.h"

#include <utility>

#include "json/json.h"
#include "view/base64.h"

namespace regard::view {
namespace {

Json number_or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json to_json(const HeadStatistics& s) {
  return {{"telling", s.telling},
          {"entropy", s.entropy},
          {"distance", number_or_null(s.distance)},
          {"first", s.first},
          {"previous", number_or_null(s.previous)},
          {"same", number_or_null(s.same)}};
}

Json to_json(const Thumbnails& thumbnails) {
  const std::string_view cells(
      reinterpret_cast<const char*>(thumbnails.cells.data()),
      thumbnails.cells.size());
  return {{"rows", thumbnails.rows},
          {"columns", thumbnails.columns},
          {"data", base64(cells)}};
}

Json to_json(const Section& section) {
  Json statistics = Json::array();
  for (std::int64_t layer = 0; layer < section.layers(); ++layer) {
    Json heads = Json::array();
    for (std::int64_t head = 0; head < section.config().heads; ++head) {
      heads.push_back(to_json(section.statistics(layer, head)));
    }
    statistics.push_back(std::move(heads));
  }
  Json json = {{"name", section.config().name},
               {"queries", section.config().queries},
               {"keys", section.config().keys},
               {"layers", section.layers()},
               {"heads", section.config().heads},
               {"causal", section.is_causal()},
               {"thumbnails", to_json(section.thumbnails())},
               {"statistics", std::move(statistics)},
               {"rollout", section.has_rollout()}};
  if (section.has_vectors()) {
    json["vectors"] = {{"dim", section.vector_dim()},
                       {"scale", section.vector_scale()}};
  }
  return json;
}

Json to_json(const Axis& axis) {
  Json json = {{"name", axis.name}, {"tokens", axis.tokens}};
  if (axis.pictures) {
    Json images = Json::array();
    for (const std::string& image : axis.pictures->images) {
      images.push_back(base64(image));
    }
    json["pictures"] = {{"rows", axis.pictures->rows},
                        {"columns", axis.pictures->columns},
                        {"images", std::move(images)}};
  }
  return json;
}

Json to_json(const Start& start) {
  Json json = Json::object();
  if (start.section) json["section"] = *start.section;
  if (start.layer) json["layer"] = *start.layer;
  if (start.head) json["head"] = *start.head;
  return json;
}

}  // namespace

// A note for every reader is a string, as it always was.
Json model_json(const std::string& name, const Note& note) {
  Json line = "";
  if (note.size() == 1 && note.begin()->first.empty()) {
    line = note.begin()->second;
  } else if (!note.empty()) {
    line = Json::object();
    for (const auto& [language, text] : note) line[language] = text;
  }
  return {{"name", name}, {"note", std::move(line)}};
}

std::string header_json(const Trace& trace, const std::string& id) {
  Json axes = Json::array();
  for (const Axis& axis : trace.axes()) axes.push_back(to_json(axis));
  Json sections = Json::array();
  for (const Section& section : trace.sections()) {
    sections.push_back(to_json(section));
  }
  const Json header = {{"format", "regard-trace"},
                       {"version", 1},
                       {"id", id},
                       {"model", model_json(trace.model, trace.note)},
                       {"start", to_json(trace.start())},
                       {"source", trace.source},
                       {"target", trace.target},
                       {"steps", trace.steps},
                       {"axes", std::move(axes)},
                       {"sections", std::move(sections)}};
  return header.dump({.keys = Json::Keys::kAsWritten, .replace_invalid = true});
}

}  // namespace regard::view
