// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <variant>

#include "attention/entry_masks.h"
#include "attention/problem.h"
#include "dist/stream.h"
#include "kernels/visible_run.h"
#include "mask/parts.h"

namespace regard::dist {

// body(query, keys): for every query of a range the keys that it sees, which
// are not none; once for each batch entry, and for each head where those may
// see different ones.
template <typename Body>
void for_seen(const detail::Problem<float>& p,
              const detail::EntryMasks<float>& masks, Part queries,
              const Body& body) {
  const auto& parts = p.options.mask.parts();
  const bool by_head =
      std::any_of(parts.begin(), parts.end(), [](const auto& part) {
        const auto* dense = std::get_if<DensePart>(&part->what);
        return dense != nullptr && dense->pairs.extent(1) > 1;
      });
  for (std::int64_t index = 0; index < p.entries; ++index) {
    masks.with(index, [&](const BoundMask& mask) {
      for (std::int64_t h = 0; h < (by_head ? p.heads : 1); ++h) {
        for (std::int64_t query = queries.begin; query < queries.end; ++query) {
          KeyRange keys = mask.range(index, h, query);
          for (const DensePart& dense : mask.dense()) {
            const kernels::VisibleRun run =
                kernels::visible_run(dense.row(index, h, query), keys.begin,
                                     keys.end, dense.visible_when);
            keys = {run.begin, run.end};
          }
          if (keys.begin < keys.end) body(query, Part{keys.begin, keys.end});
        }
      }
    });
  }
}

// The keys that some query of a range sees.
inline Part keys_seen_by(const detail::Problem<float>& p,
                         const detail::EntryMasks<float>& masks, Part queries) {
  Part seen{0, 0};
  for_seen(p, masks, queries,
           [&](std::int64_t, Part keys) { seen = joined(seen, keys); });
  return seen;
}

// Adds, for each of some parts of the keys, the queries that see some of it.
inline void add_queries_that_see(const detail::Problem<float>& p,
                                 const detail::EntryMasks<float>& masks,
                                 Part queries, std::span<const Part> key_parts,
                                 std::span<Part> seen_by) {
  for_seen(p, masks, queries, [&](std::int64_t query, Part keys) {
    for (std::size_t i = 0; i < key_parts.size(); ++i) {
      if (intersection(key_parts[i], keys).size() == 0) continue;
      seen_by[i] = joined(seen_by[i], {query, query + 1});
    }
  });
}

}  // namespace regard::dist
