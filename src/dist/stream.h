// SPDX-License-Identifier: Apache-2.0
// Positions of a sequence on their way from rank to rank, in index order.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "dist/block.h"
#include "regard/core/threads.h"
#include "regard/dist/communicator.h"

namespace regard::dist {

inline Part intersection(Part a, Part b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}
// The smallest range that has both.
inline Part joined(Part a, Part b) {
  if (a.size() == 0) return b;
  if (b.size() == 0) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

// Positions [begin, end()): keys and values, or what belongs to queries.
struct Window {
  std::int64_t begin = 0;
  std::vector<Block> blocks;
  std::int64_t end() const { return begin + blocks[0].positions(); }
  // Room for positions [begin, end), of the same blocks.
  Window like(std::int64_t first, std::int64_t last) const;
};

// Up to two ranges that a rank wants, in order and apart.
using Needs = std::array<Part, 2>;
// Of two ranges that may meet or be empty; each from a multiple of `unit` on.
Needs needs_of(Part a, Part b, std::int64_t unit);

// A sequence that ranks hold piece by piece.
struct Travel {
  struct Piece {
    int owner;
    Part positions;
  };
  std::vector<Piece> pieces;  // in index order, all of the sequence
  std::vector<Window*> own;   // where this rank's are; one at least
  std::vector<Needs> needs;   // by rank
  std::int64_t unit;          // what must not be cut
};

// Adds the positions of one owner, in pieces that are small against a long
// sequence: the first one is soon there, and room for two is enough.
void add_pieces(std::vector<Travel::Piece>& pieces, int owner, Part positions,
                std::int64_t unit);
// Where each rank holds part_of(length).
std::vector<Travel::Piece> held_pieces(std::int64_t length, int ranks,
                                       std::int64_t unit);

// Calls `use` with what this rank wants, in index order within each range: a
// window, and which of its positions are ready, [begin, end) of whole units,
// but for the end of a range. Where pieces cut a unit, its first positions wait
// for the others. All that this rank has is offered at once, so that nobody
// waits for it to come so far; the next piece travels while `use` is at work.
// All ranks call it. What was begun to be received before is waited for, too;
// what is sent may still be under way afterwards.
void visit(Communicator& ranks, const Travel& travel,
           FunctionRef<void(Window&, Part)> use);

}  // namespace regard::dist
