// SPDX-License-Identifier: Apache-2.0
// Keys and values on their way from rank to rank.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "dist/block.h"
#include "regard/core/threads.h"
#include "regard/dist/communicator.h"

namespace regard::dist {

inline Part intersection(Part a, Part b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// Up to two ranges of keys that a rank wants, in order and apart; each begins
// with a split.
using KeyNeeds = std::array<Part, 2>;

// Keys and values [begin, begin + positions).
struct KeyWindow {
  std::int64_t begin = 0;
  Block k, v;
  std::int64_t end() const { return begin + k.positions(); }
};

// What a rank holds of all keys and values: part_of(length).
struct OwnKeys {
  Block &k, &v;
  std::int64_t length;
};

// Every rank holds a part of the keys and values and wants needs[rank].
// Calls `use` with what it wants, in index order within each range: a window
// that has the keys [begin, end) of whole splits, but for the end of a range.
// Where ranks cut a split, its first keys wait for the others. What comes next
// travels while `use` is at work. All ranks call it.
void visit_keys(Communicator& ranks, const OwnKeys& keys,
                const std::vector<KeyNeeds>& needs,
                FunctionRef<void(KeyWindow&, Part)> use);

}  // namespace regard::dist
