// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "bind.h"
#include "regard/core/error.h"
#include "regard/view/imported_weights.h"
#include "regard/view/page.h"

namespace regard::python {
namespace {

constexpr const char* kWhere = "view";

// Borrows the layers, [heads, queries, keys] each.
view::ImportedSection section_of(const std::string& name,
                                 const std::vector<Array>& layers) {
  require(!layers.empty(), kWhere, "'", name, "' must have a layer");
  for (const Array& layer : layers) {
    require(layer.dtype() == DType::kFloat32 && layer.rank() == 3, kWhere,
            "a layer must be float32 [heads, queries, keys]; one of '", name,
            "' is ", to_string(layer.dtype()), " ", to_string(layer.shape()));
  }
  view::ImportedSection section;
  section.name = name;
  section.layers = static_cast<std::int64_t>(layers.size());
  section.heads = layers.front().extent(0);
  section.rows = layers.front().extent(1);
  section.columns = layers.front().extent(2);
  section.layer = [&layers](std::int64_t layer) {
    return layers[static_cast<std::size_t>(layer)].view<const float, 3>();
  };
  return section;
}

std::optional<std::int64_t> section_index(
    const view::Trace& trace, const std::optional<std::string>& name) {
  if (!name) return {};
  std::string names;
  for (std::size_t i = 0; i < trace.sections().size(); ++i) {
    const std::string& one = trace.sections()[i].config().name;
    if (one == *name) return static_cast<std::int64_t>(i);
    names += (i == 0 ? "'" : ", '") + one + "'";
  }
  require(false, kWhere, "section must be one of ", names, "; got '", *name,
          "'");
  return {};
}

// What is shown: (sections, source_tokens, target_tokens, only_cross, texts).
// Sections are [(name, [layer, ...]), ...]; texts are the model's name, a note
// on it, the source and the target.
struct Given {
  explicit Given(const nb::tuple& from)
      : tokens{nb::cast<std::vector<std::string>>(from[1]),
               nb::cast<std::optional<std::vector<std::string>>>(from[2]),
               nb::cast<bool>(from[3])},
        texts(nb::cast<std::vector<std::string>>(from[4])) {
    for (const nb::handle entry : nb::cast<nb::list>(from[0])) {
      names.push_back(nb::cast<std::string>(entry[0]));
      std::vector<Array>& list = arrays.emplace_back();
      for (const nb::handle weights : nb::cast<nb::list>(entry[1])) {
        list.push_back(input_array(weights, kWhere, "weights"));
      }
    }
    require(texts.size() == 4, kWhere, "there must be four texts");
  }

  view::Trace trace() const {
    std::vector<view::ImportedSection> sections;
    for (std::size_t i = 0; i < names.size(); ++i) {
      sections.push_back(section_of(names[i], arrays[i]));
    }
    view::Trace trace = view::trace_imported(tokens, std::move(sections));
    trace.model = texts[0];
    trace.note = {{"", texts[1]}};
    trace.source = texts[2];
    trace.target = texts[3];
    return trace;
  }

  std::vector<std::string> names;
  std::vector<std::vector<Array>> arrays;
  view::Tokens tokens;
  std::vector<std::string> texts;
};

// `beside` may be None.
std::string view_page(const nb::tuple& given,
                      const std::optional<nb::tuple>& beside,
                      std::vector<std::int64_t> layers,
                      std::vector<std::int64_t> heads,
                      const std::optional<std::string>& section,
                      std::optional<std::int64_t> layer,
                      std::optional<std::int64_t> head) {
  const Given first(given);
  std::optional<Given> second;
  if (beside) second.emplace(*beside);
  const nb::gil_scoped_release free;
  view::Trace trace = first.trace();
  trace.set_start({section_index(trace, section), layer, head});
  std::optional<view::Trace> other;
  if (second) other = second->trace();
  view::ExportOptions options;
  options.layers = std::move(layers);
  options.heads = std::move(heads);
  if (other) options.beside = &*other;
  return view::exported_page(trace, options);
}

}  // namespace

void bind_view(nb::module_& m) {
  m.def("view_page", &view_page, nb::arg("given"), nb::arg("beside").none(),
        nb::arg("layers"), nb::arg("heads"), nb::arg("section").none(),
        nb::arg("layer").none(), nb::arg("head").none(),
        "The page of regard.view: (sections, source_tokens, target_tokens, "
        "only_cross, texts), and the same of what stands beside it.");
}

}  // namespace regard::python
