// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "attention/row_blocks.h"

namespace regard::detail {

// How the kernel would class the tiles of one block of rows: what ScoreBlock
// and the loop over its key blocks do, without scores.
class TileCount {
 public:
  std::int64_t full = 0;
  std::int64_t mixed = 0;
  std::int64_t skipped = 0;
  std::int64_t visited_pairs = 0;

  template <typename T>
  void add(const Problem<T>& problem, const BoundMask& mask,
           const RowBlock& block);

 private:
  struct Row {
    std::int64_t head, query;
    KeyRange seen;
  };
  struct Group {
    std::int64_t first, count;  // of rows_
    KeyRange any, all;          // seen by some row, and by every row
  };
  enum class Tile { kSkipped, kMixed, kFull };

  void measure(const BoundMask& mask, std::int64_t index);
  Tile classify(const BoundMask& mask, std::int64_t index, const Group& group,
                KeyRange keys) const;

  std::vector<Row> rows_;
  std::vector<Group> groups_;
  bool ranges_say_all_ = true;  // of rows_: the dense parts hide nothing else
};

}  // namespace regard::detail
