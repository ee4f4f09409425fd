// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "attention/entry_masks.h"
#include "attention/problem.h"
#include "attention/row_blocks.h"

namespace regard::detail {

// How the kernel classes tiles of rows and keys.
struct TileCount {
  std::int64_t full = 0;
  std::int64_t mixed = 0;
  std::int64_t skipped = 0;
  std::int64_t visited_pairs = 0;

  TileCount& operator+=(const TileCount& other);
  bool operator==(const TileCount&) const = default;
};
TileCount operator*(std::int64_t times, const TileCount& count);
TileCount operator-(const TileCount& a, const TileCount& b);

// The tiles of a whole problem: what ScoreBlock and the loop over its key
// blocks do, without scores. Takes time in proportion to the pairs of a dense
// mask, to the queries of documents, and to neither with every other mask.
TileCount count_tiles(const Problem<float>& problem,
                      const EntryMasks<float>& masks, const RowBlocks& blocks);

// The pairs that the mask shows, of all heads and entries, in the same time.
std::int64_t count_visible_pairs(const Problem<float>& problem,
                                 const EntryMasks<float>& masks);

}  // namespace regard::detail
