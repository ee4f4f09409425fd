// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "regard/view/trace.h"
#include "view/base64.h"

namespace regard::view {
namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json to_json(const HeadStatistics& s) {
  return {{"entropy", s.entropy},
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
  return {{"name", section.config().name},
          {"queries", section.config().queries},
          {"keys", section.config().keys},
          {"layers", section.layers()},
          {"heads", section.config().heads},
          {"causal", section.is_causal()},
          {"thumbnails", to_json(section.thumbnails())},
          {"statistics", std::move(statistics)},
          {"rollout", section.has_rollout()}};
}

}  // namespace

std::string header_json(const Trace& trace, const std::string& id) {
  Json axes = Json::array();
  for (const Axis& axis : trace.axes()) {
    axes.push_back({{"name", axis.name}, {"tokens", axis.tokens}});
  }
  Json sections = Json::array();
  for (const Section& section : trace.sections()) {
    sections.push_back(to_json(section));
  }
  const Json header = {{"format", "regard-trace"},
                       {"version", 1},
                       {"id", id},
                       {"model", {{"name", trace.model}, {"note", trace.note}}},
                       {"source", trace.source},
                       {"target", trace.target},
                       {"steps", trace.steps},
                       {"axes", std::move(axes)},
                       {"sections", std::move(sections)}};
  return header.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace regard::view
