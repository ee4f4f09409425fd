// SPDX-License-Identifier: Apache-2.0
#include "regard/view/imported_weights.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "regard/core/error.h"

namespace regard::view {
namespace {

constexpr const char* kWhere = "view::trace_imported";

struct Side {
  std::size_t axis;
  std::int64_t length;
};

// Which texts a section may be between.
struct Pairing {
  std::string name;
  Side queries;
  Side keys;

  bool fits(const ImportedSection& section) const {
    return section.rows == queries.length && section.columns == keys.length;
  }
};

std::string shape_of(const ImportedSection& section) {
  const std::int64_t shape[] = {section.layers, section.heads, section.rows,
                                section.columns};
  return to_string(shape);
}

const Pairing& pairing_of(const ImportedSection& section,
                          const std::vector<Pairing>& pairings) {
  const Pairing* found = nullptr;
  for (const Pairing& pairing : pairings) {
    if (pairing.name == section.name) {
      require(pairing.fits(section), kWhere, "'", section.name, "' must have ",
              pairing.queries.length, " queries and ", pairing.keys.length,
              " keys, as there are tokens; it is ", shape_of(section));
      return pairing;
    }
  }
  for (const Pairing& pairing : pairings) {
    if (!pairing.fits(section)) continue;
    require(found == nullptr, kWhere,
            "source and target are equally long, so '", section.name,
            "' could be either's: name it encoder, decoder or cross");
    found = &pairing;
  }
  if (found == nullptr) {
    std::string counts;
    for (const Pairing& pairing : pairings) {
      if (!counts.empty()) counts += " or ";
      counts += std::to_string(pairing.queries.length) + " x " +
                std::to_string(pairing.keys.length);
    }
    require(false, kWhere, "'", section.name, "' must have ", counts,
            " queries and keys, as there are tokens; it is ",
            shape_of(section));
  }
  return *found;
}

// encoder, decoder and cross come first.
int rank_of(const std::string& name) {
  constexpr std::string_view kFirst[] = {"encoder", "decoder", "cross"};
  return static_cast<int>(
      std::find(std::begin(kFirst), std::end(kFirst), name) -
      std::begin(kFirst));
}

}  // namespace

Trace trace_imported(Tokens tokens, std::vector<ImportedSection> sections) {
  require(!sections.empty(), kWhere, "there must be weights; there are none");
  std::stable_sort(sections.begin(), sections.end(),
                   [](const ImportedSection& a, const ImportedSection& b) {
                     const int first = rank_of(a.name);
                     const int second = rank_of(b.name);
                     return std::tie(first, a.name) < std::tie(second, b.name);
                   });
  Trace trace;
  const auto side = [&trace](const char* name,
                             std::vector<std::string> pieces) {
    const auto length = static_cast<std::int64_t>(pieces.size());
    return Side{trace.add_axis({name, std::move(pieces)}), length};
  };
  const Side source = side("source", std::move(tokens.source));
  std::vector<Pairing> pairings;
  if (!tokens.only_cross) pairings.push_back({"encoder", source, source});
  if (tokens.target) {
    const Side target = side("target", *std::move(tokens.target));
    if (!tokens.only_cross) pairings.push_back({"decoder", target, target});
    pairings.push_back({"cross", target, source});
  }
  for (const ImportedSection& imported : sections) {
    const Pairing& pairing = pairing_of(imported, pairings);
    Section& section = trace.add_section(
        {imported.name, pairing.queries.axis, pairing.keys.axis, imported.heads,
         pairing.queries.axis == pairing.keys.axis});
    for (std::int64_t layer = 0; layer < imported.layers; ++layer) {
      section.add_layer(imported.layer(layer));
    }
  }
  return trace;
}

}  // namespace regard::view
